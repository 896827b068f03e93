// SPDX-License-Identifier: GPL-2.0
/* C functions for bytes that stay in the packet in which they arrived, see kapi/net/packet.rs. */
#include <linux/cc_platform.h>
#include <linux/mm.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <net/dst.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "helpers_skb.h"

/* The part of a packet that was taken, in the control buffer of its clone. */
struct part {
	u32 offset;
	u32 len;
	/* Bytes of memory that the clone holds. */
	size_t held;
};

static struct part *part_of(const struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct part) > sizeof(skb->cb));
	return (struct part *)skb->cb;
}

static bool is_of_driver(const struct sk_buff *skb)
{
#ifdef CONFIG_PAGE_POOL
	return skb->pp_recycle;
#else
	return false;
#endif
}

/* The memory of the pages of a packet. A reference to a part holds the whole compound page. */
static size_t pages_of(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = skb_shinfo(skb);
	const struct sk_buff *next;
	struct page *last = NULL;
	size_t bytes = 0;
	int i;

	if (skb->head_frag)
		bytes += page_size(virt_to_head_page(skb->head));
	for (i = 0; i < shared->nr_frags; i++) {
		struct page *page = compound_head(skb_frag_page(&shared->frags[i]));

		if (page != last)
			bytes += page_size(page);
		last = page;
	}
	skb_walk_frags(skb, next)
		bytes += pages_of(next);
	return bytes;
}

/* Argument of take(). */
struct taking {
	const struct rds_skb_request *request;
	struct sk_buff *taken;
};

/*
 * Takes one part by a clone, which shares the data. TCP appends nothing to a packet that was
 * cloned. A clone holds the memory of the whole packet, so half of it has to be the part. Pages
 * that a local sender has spliced may change. Those of a driver may be bounce buffers if the memory
 * of the machine is encrypted.
 */
static int take(read_descriptor_t *desc, struct sk_buff *skb, unsigned int offset, size_t len)
{
	struct taking *taking = desc->arg.data;
	const struct rds_skb_request *request = taking->request;
	struct sk_buff *clone;
	size_t held;

	len = min_t(size_t, len, request->most);
	if (taking->taken || len < request->least)
		return 0;
	if (!skb_frags_readable(skb) || skb_has_shared_frag(skb) || skb_pfmemalloc(skb))
		return 0;
	if (is_of_driver(skb) && cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT))
		return 0;
	held = max_t(size_t, skb->truesize, pages_of(skb));
	if ((len < held / 2 && !request->any_share) || held > request->room)
		return 0;
	clone = skb_clone(skb, GFP_ATOMIC | __GFP_NOWARN);
	if (!clone)
		return 0;
	/* Nothing but memory stays: the reader may be long in coming. */
	skb_dst_drop(clone);
	skb_ext_reset(clone);
	clone->dev = NULL;
	*part_of(clone) = (struct part){ .offset = offset, .len = len, .held = held };
	taking->taken = clone;
	desc->count = 0;
	return len;
}

/**
 * rds_rust_skb_take_locked() - take the next bytes of a stream without a copy
 * @sk: connected TCP socket, which is locked
 * @request: limits
 *
 * Return: a packet with the bytes, or NULL if they are to be copied, or none have arrived.
 */
struct sk_buff *rds_rust_skb_take_locked(struct sock *sk, const struct rds_skb_request *request)
{
	struct taking taking = { .request = request };
	read_descriptor_t desc = { .count = request->most, .arg.data = &taking };

	if (!skb_queue_empty(&sk->sk_receive_queue))
		tcp_read_sock(sk, &desc, take);
	return taking.taken;
}

/* rds_rust_skb_take() - as rds_rust_skb_take_locked(), with a socket that is not locked */
struct sk_buff *rds_rust_skb_take(struct socket *sock, const struct rds_skb_request *request)
{
	struct sk_buff *taken;

	if (skb_queue_empty_lockless(&sock->sk->sk_receive_queue))
		return NULL;
	lock_sock(sock->sk);
	taken = rds_rust_skb_take_locked(sock->sk, request);
	release_sock(sock->sk);
	return taken;
}

/* The number of bytes that were taken. */
u32 rds_rust_skb_len(const struct sk_buff *skb)
{
	return part_of(skb)->len;
}

/* The memory that the packet holds. It is constant. */
size_t rds_rust_skb_true_size(const struct sk_buff *skb)
{
	return part_of(skb)->held;
}

/* Copies some of the bytes to a program. The range is in the bytes that were taken. */
int rds_rust_skb_copy_to_msg(const struct sk_buff *skb, u32 offset, struct msghdr *msg, u32 len)
{
	return skb_copy_datagram_msg(skb, part_of(skb)->offset + offset, msg, len);
}

/* Copies some of the bytes to memory of the kernel. */
int rds_rust_skb_copy(const struct sk_buff *skb, u32 offset, void *to, u32 len)
{
	return skb_copy_bits(skb, part_of(skb)->offset + offset, to, len);
}

void rds_rust_skb_free(struct sk_buff *skb)
{
	consume_skb(skb);
}
