/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for bytes that stay in the packet in which they arrived. */
#ifndef RDS_RUST_HELPERS_SKB_H
#define RDS_RUST_HELPERS_SKB_H

#include <linux/net.h>
#include <linux/types.h>

/* Bytes to take from a stream. */
struct rds_skb_request {
	/* Least and most bytes to take. */
	u32 least;
	u32 most;
	/* Most bytes of memory that the packet may hold. */
	size_t room;
	/* The bytes may have less than half of that memory. */
	bool any_share;
};

struct sk_buff *rds_rust_skb_take(struct socket *sock, const struct rds_skb_request *request);
struct sk_buff *rds_rust_skb_take_locked(struct sock *sk, const struct rds_skb_request *request);
u32 rds_rust_skb_len(const struct sk_buff *skb);
size_t rds_rust_skb_true_size(const struct sk_buff *skb);
int rds_rust_skb_copy_to_msg(const struct sk_buff *skb, u32 offset, struct msghdr *msg, u32 len);
int rds_rust_skb_copy(const struct sk_buff *skb, u32 offset, void *to, u32 len);
void rds_rust_skb_free(struct sk_buff *skb);

#endif
