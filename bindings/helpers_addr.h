/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for the addresses of this host. */
#ifndef RDS_RUST_HELPERS_ADDR_H
#define RDS_RUST_HELPERS_ADDR_H

#include <linux/in6.h>
#include <linux/notifier.h>
#include <linux/types.h>

/*
 * An address of a network device, IPv4 as an IPv4-mapped one. The scope is 0 unless it is
 * link-local.
 */
struct rds_local_addr {
	u8 addr[16];
	u32 scope;
};

/* Locality of an address, according to the IP layer. */
enum rds_locality {
	RDS_ADDR_ELSEWHERE,
	RDS_ADDR_ASSIGNED,
	RDS_ADDR_ROUTED,
};

enum rds_locality rds_rust_locality_v4(struct net *net, const u8 addr[4]);
enum rds_locality rds_rust_locality_v6(struct net *net, const u8 addr[16], u32 scope);
size_t rds_rust_local_addrs(struct net *net, struct rds_local_addr *out, size_t room);

bool rds_rust_is_broadcast(struct net *net, const u8 addr[4]);

int rds_rust_register_inet6addr_notifier(struct notifier_block *block);
void rds_rust_unregister_inet6addr_notifier(struct notifier_block *block);
bool rds_rust_ifa_is_of(const void *ifa, const struct net *net);
bool rds_rust_ifa6_is_of(const void *ifa, const struct net *net);

#endif
