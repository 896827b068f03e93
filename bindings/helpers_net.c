// SPDX-License-Identifier: GPL-2.0
/* C functions for the wrappers of network namespaces in kapi/net/netns.rs, and for their owners. */
#include <linux/cred.h>
#include <linux/string.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "helpers.h"

/* The owner of the outermost user namespace that root has not created, or else a default. */
static kuid_t outermost_owner(const struct user_namespace *ns, kuid_t user)
{
	for (; ns->parent; ns = ns->parent)
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			user = ns->owner;
	return user;
}

/**
 * rds_rust_current_user() - find the user to whom resources of the caller are charged
 *
 * User namespaces that root has created are ignored.
 *
 * Return: the owner of the outermost user namespace of the caller, or else its effective user.
 */
u32 rds_rust_current_user(void)
{
	const struct cred *cred = current_cred();

	return __kuid_val(outermost_owner(cred->user_ns, cred->euid));
}

struct net *rds_rust_init_net(void)
{
	return &init_net;
}

bool rds_rust_net_is_init(const struct net *net)
{
	return net_eq(net, &init_net);
}

/* The user who is root in the outermost user namespace around @ns, or else its owner. */
static kuid_t outermost_root(struct user_namespace *ns)
{
	kuid_t root;

	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	/* There is none if nobody has written the map yet. */
	root = make_kuid(ns, 0);
	return uid_valid(root) ? root : ns->owner;
}

/**
 * rds_rust_net_owner() - find the user to whom resources of a network namespace are charged
 * @net: live namespace
 * @none: result if it belongs to the initial user namespace
 *
 * If root has created all its user namespaces, that is the user whom the outermost one has as root
 * at this time.
 *
 * Return: the owner, as rds_rust_current_user() has it for root in its user namespace.
 */
u32 rds_rust_net_owner(const struct net *net, u32 none)
{
	kuid_t owner;

	if (net->user_ns == &init_user_ns)
		return none;
	owner = outermost_owner(net->user_ns, INVALID_UID);
	return __kuid_val(uid_valid(owner) ? owner : outermost_root(net->user_ns));
}

static unsigned int pernet_id;
static struct rds_pernet pernet_calls;

static int pernet_init(struct net *net)
{
	return pernet_calls.init(pernet_calls.context, net, net_generic(net, pernet_id));
}

static void pernet_pre_exit(struct net *net)
{
	pernet_calls.exit(pernet_calls.context, net_generic(net, pernet_id));
}

/* The kernel passes no context to these functions. So there is one registration at a time. */
static struct pernet_operations pernet_ops = {
	.init = pernet_init,
	.pre_exit = pernet_pre_exit,
	.id = &pernet_id,
	.size = sizeof(void *),
};

/**
 * rds_rust_register_pernet() - call functions for each network namespace
 * @calls: the functions
 *
 * The exit of a namespace comes while it has its routes and devices, so sockets can reset their
 * connections.
 *
 * Return: 0, -EBUSY if there is a registration, or an error.
 */
int rds_rust_register_pernet(const struct rds_pernet *calls)
{
	int error;

	if (pernet_calls.init)
		return -EBUSY;
	pernet_calls = *calls;
	error = register_pernet_device(&pernet_ops);
	if (error)
		memset(&pernet_calls, 0, sizeof(pernet_calls));
	return error;
}

void rds_rust_unregister_pernet(void)
{
	unregister_pernet_device(&pernet_ops);
	memset(&pernet_calls, 0, sizeof(pernet_calls));
}
