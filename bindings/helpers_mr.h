/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for program memory that peers may access. */
#ifndef RDS_RUST_HELPERS_MR_H
#define RDS_RUST_HELPERS_MR_H

#include <linux/scatterlist.h>
#include <rdma/ib_verbs.h>

/* Pages mapped for a device. */
struct rds_ib_mapping {
	struct sg_table table;
	enum dma_data_direction direction;
	unsigned long attrs;
};

int rds_rust_ib_map_pages(struct ib_device *device, struct page **pages, unsigned int count,
			  unsigned int offset, unsigned long size, bool writable, bool shared,
			  struct rds_ib_mapping *mapping);
unsigned int rds_rust_ib_mapping_pieces(const struct rds_ib_mapping *mapping, unsigned int few);
void rds_rust_ib_mapping_list(const struct rds_ib_mapping *mapping, struct ib_sge *sges);
void rds_rust_ib_unmap_pages(struct ib_device *device, struct rds_ib_mapping *mapping);

/* memory regions */
struct ib_mr *rds_rust_ib_alloc_mr(struct ib_pd *pd, u32 pages);
int rds_rust_ib_dereg_mr(struct ib_mr *mr);
int rds_rust_ib_mr_map(struct ib_mr *mr, struct rds_ib_mapping *mapping);
u32 rds_rust_ib_mr_rkey(const struct ib_mr *mr);
u32 rds_rust_ib_mr_start(const struct ib_mr *mr);
u32 rds_rust_ib_mr_lkey(const struct ib_mr *mr);
struct ib_cq *rds_rust_ib_alloc_cq(struct ib_device *device, int entries);
void rds_rust_ib_free_cq(struct ib_cq *cq);
int rds_rust_ib_post_reg_mr(struct ib_qp *qp, struct ib_mr *mr, int access, struct ib_cqe *cqe);
/* An operation on memory of a peer, with one piece of local memory. */
struct rds_ib_operation {
	enum ib_wr_opcode opcode;
	bool signaled;
	u32 lkey;
	u32 length;
	u64 address;
	u32 rkey;
	u64 remote_address;
	/* Operands of atomic operations. */
	u64 compare_add;
	u64 swap;
	u64 compare_add_mask;
	u64 swap_mask;
};

int rds_rust_ib_post_operation(struct ib_qp *qp, const struct rds_ib_operation *operation, u64 id);
int rds_rust_ib_post_local_inv(struct ib_qp *qp, u32 rkey, struct ib_cqe *cqe);

#endif
