// SPDX-License-Identifier: GPL-2.0
/* C functions for the wrappers in kapi/net/ that deal with addresses of this host. */
#include <linux/inetdevice.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/string.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <net/net_namespace.h>
#include <net/route.h>

#include "helpers_addr.h"

enum rds_locality rds_rust_locality_v4(struct net *net, const u8 addr[4])
{
	enum rds_locality locality = RDS_ADDR_ELSEWHERE;
	const struct in_ifaddr *ifa;
	struct in_device *in_dev;
	struct net_device *dev;
	__be32 wanted;

	memcpy(&wanted, addr, sizeof(wanted));
	rcu_read_lock();
	dev = __ip_dev_find(net, wanted, false);
	in_dev = dev ? __in_dev_get_rcu(dev) : NULL;
	if (in_dev) {
		locality = RDS_ADDR_ROUTED;
		in_dev_for_each_ifa_rcu(ifa, in_dev) {
			if (ifa->ifa_local == wanted) {
				locality = RDS_ADDR_ASSIGNED;
				break;
			}
		}
	}
	rcu_read_unlock();
	return locality;
}

enum rds_locality rds_rust_locality_v6(struct net *net, const u8 addr[16], u32 scope)
{
	enum rds_locality locality = RDS_ADDR_ELSEWHERE;
#if IS_ENABLED(CONFIG_IPV6)
	struct net_device *dev;
	struct in6_addr wanted;

	/* With ipv6.disable=1 the address table does not exist. */
	if (!ipv6_mod_enabled())
		return locality;
	memcpy(&wanted, addr, sizeof(wanted));
	rcu_read_lock();
	if (scope) {
		dev = dev_get_by_index_rcu(net, scope);
		if (dev && ipv6_chk_addr(net, &wanted, dev, 1))
			locality = RDS_ADDR_ASSIGNED;
	} else {
		for_each_netdev_rcu(net, dev) {
			if (ipv6_chk_addr(net, &wanted, dev, 1)) {
				locality = RDS_ADDR_ASSIGNED;
				break;
			}
		}
	}
	rcu_read_unlock();
#endif
	return locality;
}

static void put_addr(struct rds_local_addr *out, const struct in6_addr *addr, u32 scope)
{
	memcpy(out->addr, addr, sizeof(out->addr));
	out->scope = scope;
}

static size_t put_addrs_v4(struct rds_local_addr *out, size_t room, struct net_device *dev)
{
	struct in_device *in_dev = __in_dev_get_rcu(dev);
	const struct in_ifaddr *ifa;
	struct in6_addr mapped;
	size_t count = 0;

	if (!in_dev)
		return 0;
	in_dev_for_each_ifa_rcu(ifa, in_dev) {
		if (count == room)
			break;
		ipv6_addr_set_v4mapped(ifa->ifa_local, &mapped);
		put_addr(&out[count++], &mapped, 0);
	}
	return count;
}

static size_t put_addrs_v6(struct rds_local_addr *out, size_t room, struct net_device *dev)
{
	size_t count = 0;
#if IS_ENABLED(CONFIG_IPV6)
	struct inet6_dev *in6_dev = __in6_dev_get(dev);
	const struct inet6_ifaddr *ifa;
	bool link_local;

	if (!in6_dev)
		return 0;
	list_for_each_entry_rcu(ifa, &in6_dev->addr_list, if_list) {
		if (count == room)
			break;
		link_local = ipv6_addr_type(&ifa->addr) & IPV6_ADDR_LINKLOCAL;
		put_addr(&out[count++], &ifa->addr, link_local ? dev->ifindex : 0);
	}
#endif
	return count;
}

/**
 * rds_rust_local_addrs() - list the addresses of network devices
 * @net: network namespace
 * @out: array for the addresses
 * @room: size of the array
 *
 * Addresses of loopback devices are omitted, and so are those that do not fit.
 *
 * Return: the number of addresses.
 */
size_t rds_rust_local_addrs(struct net *net, struct rds_local_addr *out, size_t room)
{
	struct net_device *dev;
	size_t count = 0;

	rcu_read_lock();
	for_each_netdev_rcu(net, dev) {
		if (dev->flags & IFF_LOOPBACK)
			continue;
		count += put_addrs_v4(out + count, room - count, dev);
		count += put_addrs_v6(out + count, room - count, dev);
	}
	rcu_read_unlock();
	return count;
}

/**
 * rds_rust_is_broadcast() - check whether the routing table has an address as broadcast
 * @net: network namespace
 * @addr: IPv4 address in network byte order
 *
 * Return: true if it is a broadcast address.
 */
bool rds_rust_is_broadcast(struct net *net, const u8 addr[4])
{
	__be32 wanted;

	memcpy(&wanted, addr, sizeof(wanted));
	return inet_addr_type(net, wanted) == RTN_BROADCAST;
}

int rds_rust_register_inet6addr_notifier(struct notifier_block *block)
{
	return IS_ENABLED(CONFIG_IPV6) ? register_inet6addr_notifier(block) : 0;
}

void rds_rust_unregister_inet6addr_notifier(struct notifier_block *block)
{
	if (IS_ENABLED(CONFIG_IPV6))
		unregister_inet6addr_notifier(block);
}

bool rds_rust_ifa_is_of(const void *ifa, const struct net *net)
{
	const struct in_ifaddr *address = ifa;

	return net_eq(dev_net(address->ifa_dev->dev), net);
}

bool rds_rust_ifa6_is_of(const void *ifa, const struct net *net)
{
	const struct inet6_ifaddr *address = ifa;

	return net_eq(dev_net(address->idev->dev), net);
}
