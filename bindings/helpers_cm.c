// SPDX-License-Identifier: GPL-2.0
/* Helpers for identifiers of the RDMA connection manager (rdma_cm). */
#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/sch_generic.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include "helpers_addr.h"
#include "helpers_fault.h"
#include "helpers_rdma.h"

/**
 * rds_rust_rdma_create_id() - create a CM id in a network namespace
 * @net: the namespace, which may be ending
 * @handler: event handler
 * @context: its context
 *
 * The namespace does not end as long as the CM id exists. Outside of the initial one the CM id
 * does not use iWARP. Drivers of iWARP make their TCP sockets in the namespace of the calling task.
 * So a second listener on all addresses fails there, and with it the addition of the device.
 *
 * Return: the CM id, or an ERR_PTR(): -ENODEV if the namespace ends.
 */
struct rdma_cm_id *rds_rust_rdma_create_id(struct net *net, rdma_cm_event_handler handler,
					   void *context)
{
	struct rdma_cm_id *id;

	if (!maybe_get_net(net))
		return ERR_PTR(-ENODEV);
	id = rdma_create_id(net, handler, context, RDMA_PS_TCP, IB_QPT_RC);
	put_net(net);
	if (!IS_ERR(id) && !net_eq(net, &init_net) &&
	    WARN_ON_ONCE(rdma_restrict_node_type(id, RDMA_NODE_IB_CA))) {
		rdma_destroy_id(id);
		return ERR_PTR(-EINVAL);
	}
	return id;
}

void *rds_rust_rdma_context(const struct rdma_cm_id *id)
{
	return id->context;
}

/**
 * rds_rust_rdma_refuses_by_reset() - check how the driver reports a rejection by the peer
 * @id: the CM id
 *
 * Return: true if a rejection appears as a reset of the TCP connection.
 */
bool rds_rust_rdma_refuses_by_reset(const struct rdma_cm_id *id)
{
	return id->device && (id->device->ops.driver_id == RDMA_DRIVER_SIW ||
			      id->device->ops.driver_id == RDMA_DRIVER_ERDMA);
}

/**
 * rds_rust_rdma_set_context() - set handler and context of a CM id
 * @id: the CM id
 * @handler: new event handler
 * @context: new context
 *
 * Only with the handler lock of @id held.
 */
void rds_rust_rdma_set_context(struct rdma_cm_id *id, rdma_cm_event_handler handler, void *context)
{
	id->context = context;
	id->event_handler = handler;
}

/**
 * rds_rust_rdma_has_sa() - check whether a subnet administrator provides the route of a CM id
 * @id: the CM id
 *
 * Return: false without a device, too.
 */
bool rds_rust_rdma_has_sa(const struct rdma_cm_id *id)
{
	return id->device && rdma_cap_ib_sa(id->device, id->port_num);
}

/**
 * rds_rust_rdma_set_service_level() - set the service level for the next connection request
 * @id: the CM id
 * @level: the service level
 *
 * Does nothing without a route. Only with the handler lock of @id held.
 */
void rds_rust_rdma_set_service_level(struct rdma_cm_id *id, u8 level)
{
	/*
	 * On RoCE the administrator configures the service level, and some devices have only eight.
	 */
	if (id->route.path_rec && rds_rust_rdma_has_sa(id))
		id->route.path_rec->sl = level;
}

/**
 * has_netdev_in() - check that the network device of a port is in a network namespace
 * @device: the device
 * @port: number of the port
 * @net: the namespace
 *
 * Soft-RoCE receives only in the namespace of its network device. Its management queue pair belongs
 * to that namespace alone, which may lose it.
 *
 * Return: true if it is.
 */
static bool has_netdev_in(struct ib_device *device, u32 port, const struct net *net)
{
	struct net_device *dev = ib_device_get_netdev(device, port);
	bool is_of_net = dev && net_eq(dev_net(dev), net);

	dev_put(dev);
	return is_of_net;
}

/**
 * serves() - check that a device serves the network namespace of a CM id
 * @id: the CM id, which is bound to a port of the device
 * @device: the device
 *
 * Containers have any addresses in namespaces of their own. The CM compares only those if their
 * network device is of another type than the port's. So on RoCE the entry of the GID table must
 * have a network device of the namespace. On InfiniBand the device must belong to the namespace.
 *
 * Return: true if it does.
 */
static bool serves(const struct rdma_cm_id *id, struct ib_device *device)
{
	const struct ib_gid_attr *bound = id->route.addr.dev_addr.sgid_attr;
	const struct net *net = id->route.addr.dev_addr.net;
	const struct net_device *dev;
	bool is_of_net;

	if (net_eq(net, &init_net))
		return true;
	if (!rdma_protocol_roce(device, id->port_num))
		return net_eq(read_pnet(&device->coredev.rdma_net), net);
	if (ib_uses_virt_dma(device) && !has_netdev_in(device, id->port_num, net))
		return false;
	if (!bound)
		return false;
	rcu_read_lock();
	dev = rcu_dereference(bound->ndev);
	is_of_net = dev && net_eq(dev_net(dev), net);
	rcu_read_unlock();
	return is_of_net;
}

/**
 * rds_rust_rdma_bound_device() - return the device to which a CM id is bound
 * @id: the CM id
 *
 * Return: the device, or NULL if there is none.
 */
struct ib_device *rds_rust_rdma_bound_device(const struct rdma_cm_id *id)
{
	return READ_ONCE(id->device);
}

/**
 * rds_rust_rdma_device() - return the device of a CM id, if it serves its namespace
 * @id: the CM id
 *
 * Return: the device, or NULL if there is none, or it does not serve the namespace of @id.
 */
struct ib_device *rds_rust_rdma_device(const struct rdma_cm_id *id)
{
	struct ib_device *device = rds_rust_rdma_bound_device(id);

	return device && serves(id, device) ? device : NULL;
}

/* Time limit for the interruptible waits of a task. */
struct rds_limit {
	struct timer_list timer;
	struct task_struct *task;
	bool reached;
};

static void rds_limit_reached(struct timer_list *timer)
{
	struct rds_limit *limit = timer_container_of(limit, timer, timer);

	limit->reached = true;
	set_tsk_thread_flag(limit->task, TIF_NOTIFY_SIGNAL);
	wake_up_process(limit->task);
}

/**
 * rds_rust_rdma_connect_locked() - call rdma_connect_locked() with a time limit
 * @id: the CM id
 * @param: parameters of the connection
 * @timeout_ms: limit in milliseconds
 *
 * Only for kernel threads. On InfiniBand and RoCE the call does not wait. Soft-iWARP waits in it
 * for the peer's TCP, interruptibly and up to minutes.
 *
 * Return: 0, -ETIMEDOUT after the limit, or another negative errno.
 */
int rds_rust_rdma_connect_locked(struct rdma_cm_id *id, struct rdma_conn_param *param,
				 unsigned int timeout_ms)
{
	struct rds_limit limit = { .task = current };
	int ret;

	/* In a program, clear_notify_signal() would discard other notifications. */
	if (WARN_ON_ONCE(!(current->flags & PF_KTHREAD)))
		return -EINVAL;
	timer_setup_on_stack(&limit.timer, rds_limit_reached, 0);
	mod_timer(&limit.timer, jiffies + msecs_to_jiffies(timeout_ms));
	ret = rdma_connect_locked(id, param);
	timer_delete_sync(&limit.timer);
	timer_destroy_on_stack(&limit.timer);
	clear_notify_signal();
	/* The call returns that it was interrupted. */
	return ret && limit.reached ? -ETIMEDOUT : ret;
}

/*
 * Returns true if both the IP layer and the device have the path's local address. The GID table of
 * the device follows the IP layer with a delay. An address that is added again gets another entry.
 */
static bool has_source(const struct rdma_cm_id *id)
{
	const struct ib_gid_attr *bound = id->route.addr.dev_addr.sgid_attr, *attr;
	const struct sockaddr_storage *src = &id->route.addr.src_addr;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)src;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)src;
	struct net *net = id->route.addr.dev_addr.net;
	enum rds_locality locality;
	u32 scope = 0;

	if (src->ss_family == AF_INET) {
		locality = rds_rust_locality_v4(net, (const u8 *)&v4->sin_addr);
	} else {
		if (ipv6_addr_type(&v6->sin6_addr) & IPV6_ADDR_LINKLOCAL)
			scope = v6->sin6_scope_id;
		locality = rds_rust_locality_v6(net, v6->sin6_addr.s6_addr, scope);
	}
	if (locality == RDS_ADDR_ELSEWHERE)
		return false;
	if (!bound)
		return true;
	attr = rdma_get_gid_attr(id->device, id->port_num, bound->index);
	if (IS_ERR(attr))
		return false;
	rdma_put_gid_attr(attr);
	return attr == bound;
}

/**
 * rds_rust_rdma_interface() - return the network device of a CM id
 * @id: the CM id
 *
 * Return: the interface index, or 0 if it is not known.
 */
u32 rds_rust_rdma_interface(const struct rdma_cm_id *id)
{
	return (u32)id->route.addr.dev_addr.bound_dev_if;
}

/**
 * rds_rust_rdma_is_multicast() - check whether the peer's hardware address is a multicast address
 * @id: the CM id
 *
 * Return: true if it is.
 */
bool rds_rust_rdma_is_multicast(struct rdma_cm_id *id)
{
	struct rdma_dev_addr *addr = &id->route.addr.dev_addr;
	union ib_gid gid;

	if (addr->dev_type == ARPHRD_INFINIBAND) {
		rdma_addr_get_dgid(addr, &gid);
		return gid.raw[0] == 0xff;
	}
	return addr->dev_type == ARPHRD_ETHER && is_multicast_ether_addr(addr->dst_dev_addr);
}

/**
 * rds_rust_rdma_path_is_up() - check whether messages can be sent on the path of a CM id
 * @id: the CM id
 *
 * Return: false if the address is not resolved, or the path is down. true if the CM id is bound to
 * no network device.
 */
bool rds_rust_rdma_path_is_up(const struct rdma_cm_id *id)
{
	const struct rdma_dev_addr *addr = &id->route.addr.dev_addr;
	struct ib_device *device = READ_ONCE(id->device);
	bool up, needs_source;
	struct net_device *dev;

	if (!device || rds_rust_fails(RDS_CUT_PATH, device))
		return false;
	/*
	 * Other devices send CM messages without a network device, which may be removed
	 * independently.
	 */
	up = !ib_uses_virt_dma(device);
	/* Only soft-RoCE needs the local address beyond the contents of its packets. */
	needs_source = rdma_protocol_roce(device, id->port_num) && ib_uses_virt_dma(device);
	if (!addr->bound_dev_if)
		return true;
	rcu_read_lock();
	dev = dev_get_by_index_rcu(addr->net, addr->bound_dev_if);
	if (dev) {
		/* The transmit queues start shortly after the carrier is back. */
		up = (READ_ONCE(dev->flags) & IFF_UP) && netif_carrier_ok(dev) &&
		     !qdisc_tx_is_noop(dev);
		/*
		 * After a change of the hardware address all GID entries are about to be replaced.
		 */
		if (needs_source && memcmp(addr->src_dev_addr, dev->dev_addr, dev->addr_len))
			up = false;
	}
	rcu_read_unlock();
	if (needs_source)
		up = up && has_source(id);
	return up;
}

/**
 * rds_rust_rdma_path() - read the path of a CM id
 * @id: the CM id
 * @path: set to the path
 *
 * On iWARP the GIDs are bytes of hardware addresses, and there is no path record.
 */
void rds_rust_rdma_path(struct rdma_cm_id *id, struct rds_rust_rdma_path *path)
{
	const struct sa_path_rec *rec = id->route.path_rec;
	union ib_gid local = {}, peer = {};

	/* union ib_gid is aligned; the fields of the structure are not. */
	rdma_read_gids(id, &local, &peer);
	memcpy(path->local_gid, local.raw, sizeof(path->local_gid));
	memcpy(path->peer_gid, peer.raw, sizeof(path->peer_gid));
	path->service_level = rec ? rec->sl : 0;
}

/**
 * rds_rust_rdma_named() - read the GIDs of a connection request over RoCE
 * @id: the CM id of the request
 * @named: set to the GIDs
 *
 * The peer's CM writes the GIDs, and answers are sent to the addresses in them.
 *
 * Return: false if the request did not arrive over RoCE.
 */
bool rds_rust_rdma_named(const struct rdma_cm_id *id, struct rds_rust_rdma_named *named)
{
	struct sa_path_rec *rec = id->route.path_rec;

	if (!rec || !sa_path_is_roce(rec))
		return false;
	memcpy(named->local_gid, rec->sgid.raw, sizeof(named->local_gid));
	memcpy(named->peer_gid, rec->dgid.raw, sizeof(named->peer_gid));
	return true;
}

struct ib_qp *rds_rust_rdma_qp(const struct rdma_cm_id *id)
{
	return id->qp;
}

const struct sockaddr_storage *rds_rust_rdma_local_addr(const struct rdma_cm_id *id)
{
	return &id->route.addr.src_addr;
}

const struct sockaddr_storage *rds_rust_rdma_remote_addr(const struct rdma_cm_id *id)
{
	return &id->route.addr.dst_addr;
}
