/* SPDX-License-Identifier: GPL-2.0 */
/* Faults of soft-RoCE: the calls that rxe-faults.cocci adds to its driver. */
#ifndef RXE_FAULTS_H
#define RXE_FAULTS_H

#include <rdma/ib_verbs.h>

struct dentry;
struct rxe_cq;
struct rxe_cqe;
struct rxe_mr;
struct rxe_pkt_info;
struct rxe_qp;
struct rxe_recv_wqe;
struct rxe_send_wqe;
struct sk_buff;

void rxe_faults_init(void);
void rxe_faults_exit(void);

/* The driver's own function. rxe_cq_post() decides when it is called. */
int rxe_cq_post_now(struct rxe_cq *cq, struct rxe_cqe *cqe, int solicited);
/* Calls the completion handler, possibly from a hard interrupt. */
void rxe_fault_notify(struct rxe_cq *cq);
/* Calls the handler of events of a queue pair, possibly from a hard interrupt. */
void rxe_fault_event(struct ib_event *event, struct ib_qp *ibqp);

/* Return an error of a work request, or 0. behind: it is not the first of its chain. */
int rxe_fault_post_send(struct rxe_qp *qp, bool behind);
int rxe_fault_post_recv(struct rxe_qp *qp, bool behind);
int rxe_fault_modify(struct rxe_qp *qp, const struct ib_qp_attr *attr, int mask);
int rxe_fault_region(struct rxe_qp *qp, enum ib_wr_opcode opcode);
int rxe_fault_create_qp(struct rxe_qp *qp, const struct ib_qp_init_attr *init);
/* Delays the end of a region. Sleeps. */
void rxe_fault_dereg_mr(struct rxe_mr *mr);

#define RXE_SEEN_SGES 8

/* A receive as the device sees it. */
struct rxe_seen_recv {
	struct ib_recv_wr wr;
	struct ib_sge sges[RXE_SEEN_SGES];
};

/* Returns the request that the device sees: `wr`, or `seen` with an address of nothing. */
const struct ib_recv_wr *rxe_fault_recv(struct rxe_qp *qp, const struct ib_recv_wr *wr,
					struct rxe_seen_recv *seen);
/* Possibly gives a posted request for the send queue an address of nothing. */
void rxe_fault_send_memory(struct rxe_qp *qp, struct rxe_send_wqe *wqe);
/* Returns the address that the device has for a page of a region. */
u64 rxe_fault_region_page(struct rxe_mr *mr, u64 address);

/* Gives the completion of a request its error, if it failed itself. Otherwise it is flushed. */
void rxe_fault_flush_send(struct rxe_qp *qp, struct rxe_send_wqe *wqe, struct ib_wc *wc);
/* Writes to the buffer of a receive before its flush is reported. */
void rxe_fault_flush_recv(struct rxe_qp *qp, struct rxe_recv_wqe *wqe);

/* Reasons of a violation. CALL: an argument of the DMA API is not that of the mapping. */
enum rxe_violation { UNMAPPED, BEYOND, DIRECTION, OWNER, CALL, VIOLATIONS };

void rxe_strict_violate(enum rxe_violation what, u64 address, unsigned int size, bool writes);
/* Checks an access to memory of the DMA API. Returns an error if an adapter cannot do it. */
int rxe_strict_access(struct ib_device *device, u64 address, unsigned int size, bool writes);
/* Notes the address of a page of a region, and checks an access at an offset in it. */
void rxe_strict_region(struct rxe_mr *mr, u32 index, u64 address);
int rxe_strict_region_access(struct rxe_mr *mr, u32 index, u32 offset, u32 size, bool writes);
/* Copies by `copy`, unless the region is invalidated, and makes the end of it wait for that. */
int rxe_strict_copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length, enum rxe_mr_copy_dir dir,
		    int (*copy)(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
				enum rxe_mr_copy_dir dir));
void rxe_strict_region_ends(struct rxe_mr *mr);
void rxe_strict_init(struct dentry *folder);
void rxe_strict_exit(void);

/* DMA operations of a device: rxe_guarded.c. */
void rxe_guard(struct device *dev);
bool rxe_is_guarded(struct device *dev);
phys_addr_t rxe_guarded_phys(u64 address);
struct page *rxe_guarded_page(u64 address);

/* rxe_xmit_packet() for packets of requesters. */
int rxe_fault_send(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb);

#endif
