// SPDX-License-Identifier: GPL-2.0
/* C functions for program memory that peers may access. */
#include <linux/dma-mapping.h>
#include <linux/mm.h>

#include "helpers_fault.h"
#include "helpers_mr.h"
#include "helpers_rdma.h"

/*
 * Returns the maximum size of a DMA segment. Bounce buffers have a lower limit than most devices.
 */
static size_t max_segment(struct ib_device *device)
{
	size_t most = ib_dma_max_seg_size(device);

	if (ib_uses_virt_dma(device))
		return most;
	return min(most, dma_max_mapping_size(device->dma_device));
}

/* Maps pages in segments of this size at most. Returns 0 or a negative errno. */
static int map_segments(struct ib_device *device, struct page **pages, unsigned int count,
			unsigned int offset, unsigned long size, size_t segment,
			struct rds_ib_mapping *mapping)
{
	/* The caller reports the error, or tries again. */
	unsigned long attrs = mapping->attrs | DMA_ATTR_NO_WARN;
	int err;

	err = sg_alloc_table_from_pages_segment(&mapping->table, pages, count, offset, size,
						(unsigned int)segment, GFP_KERNEL);
	if (err)
		return err;
	err = ib_dma_map_sgtable_attrs(device, &mapping->table, mapping->direction, attrs);
	if (err)
		sg_free_table(&mapping->table);
	return err;
}

/**
 * rds_rust_ib_map_pages() - map pages for a device
 * @device: the device
 * @pages: the pages
 * @count: number of pages
 * @offset: start in the first page
 * @size: size in bytes
 * @writable: the device may write the memory
 * @shared: peers access the memory at any time
 * @mapping: set to the mapping
 *
 * Sleeps.
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_ib_map_pages(struct ib_device *device, struct page **pages, unsigned int count,
			  unsigned int offset, unsigned long size, bool writable, bool shared,
			  struct rds_ib_mapping *mapping)
{
	size_t segment = max_segment(device);
	int err;

	if (rds_rust_fails(RDS_FAIL_MAP, device))
		return -ENOMEM;
	mapping->direction = writable ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	/*
	 * A cache line may belong to several mappings of a program at a time. Memory that is not
	 * shared may use a bounce buffer, which is copied when it is mapped and unmapped.
	 */
	mapping->attrs = shared ? DMA_ATTR_REQUIRE_COHERENT : DMA_ATTR_DEBUGGING_IGNORE_CACHELINES;
	err = map_segments(device, pages, count, offset, size, segment, mapping);
	/* There may be enough bounce buffers, but none as large as a segment. */
	if (err && !shared && segment > PAGE_SIZE && rds_rust_ib_operation_bounce_bytes(device))
		err = map_segments(device, pages, count, offset, size, PAGE_SIZE, mapping);
	return err;
}

/*
 * Returns true if the mapping is not contiguous in whole pages, so no single region can cover it.
 * The offset of a bounce buffer in its page may differ from that of the memory.
 */
static bool has_gaps(const struct rds_ib_mapping *mapping)
{
	struct scatterlist *sg;
	u64 end = 0;
	unsigned int i;

	for_each_sgtable_dma_sg((struct sg_table *)&mapping->table, sg, i) {
		u64 address = sg_dma_address(sg);

		if (i && (offset_in_page(end) || offset_in_page(address)) && end != address)
			return true;
		end = address + sg_dma_len(sg);
	}
	return false;
}

/**
 * rds_rust_ib_mapping_pieces() - decide how the device gets the mapping
 * @mapping: the mapping
 * @few: number of pieces up to which separate pieces cost less than a region
 *
 * Return: the number of pieces, or 0 if the mapping should be registered as a region.
 */
unsigned int rds_rust_ib_mapping_pieces(const struct rds_ib_mapping *mapping, unsigned int few)
{
	return mapping->table.nents <= few || has_gaps(mapping) ? mapping->table.nents : 0;
}

/**
 * rds_rust_ib_mapping_list() - list the pieces of a mapping
 * @mapping: the mapping
 * @sges: array with room for all pieces
 *
 * The pieces get no keys.
 */
void rds_rust_ib_mapping_list(const struct rds_ib_mapping *mapping, struct ib_sge *sges)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_dma_sg((struct sg_table *)&mapping->table, sg, i) {
		sges[i].addr = sg_dma_address(sg);
		sges[i].length = sg_dma_len(sg);
	}
}

void rds_rust_ib_unmap_pages(struct ib_device *device, struct rds_ib_mapping *mapping)
{
	ib_dma_unmap_sgtable_attrs(device, &mapping->table, mapping->direction, mapping->attrs);
	sg_free_table(&mapping->table);
}

struct ib_mr *rds_rust_ib_alloc_mr(struct ib_pd *pd, u32 pages)
{
	if (rds_rust_fails(RDS_FAIL_ALLOC_MR, pd->device))
		return ERR_PTR(-ENOMEM);
	return ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, pages);
}

int rds_rust_ib_dereg_mr(struct ib_mr *mr)
{
	if (rds_rust_fails(RDS_FAIL_DEREG_MR, mr->device))
		return -EIO;
	return ib_dereg_mr(mr);
}

/**
 * rds_rust_ib_mr_map() - assign a mapping and a new key to a region
 * @mr: the region
 * @mapping: the mapping
 *
 * The new key prevents access by peers that know the old one. Addresses that peers use count from
 * the start of the first page. ib_map_mr_sg_zbva() is not used: with it the bounds would start
 * there, too, wherever the memory begins.
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_ib_mr_map(struct ib_mr *mr, struct rds_ib_mapping *mapping)
{
	int mapped;

	if (rds_rust_fails(RDS_FAIL_MAP, mr->device))
		return -ENOMEM;
	mapped = ib_map_mr_sg(mr, mapping->table.sgl, (int)mapping->table.nents, NULL, PAGE_SIZE);
	if (mapped < 0)
		return mapped;
	if ((unsigned int)mapped < mapping->table.nents)
		return -EINVAL;
	mr->iova &= PAGE_SIZE - 1;
	ib_update_fast_reg_key(mr, (u8)ib_inc_rkey(mr->rkey));
	return 0;
}

u32 rds_rust_ib_mr_rkey(const struct ib_mr *mr)
{
	return mr->rkey;
}

/**
 * rds_rust_ib_mr_start() - return the offset at which the memory of a region begins
 * @mr: the region
 *
 * Both keys use this offset.
 *
 * Return: the offset in the first page.
 */
u32 rds_rust_ib_mr_start(const struct ib_mr *mr)
{
	return (u32)mr->iova;
}

u32 rds_rust_ib_mr_lkey(const struct ib_mr *mr)
{
	return mr->lkey;
}

struct ib_cq *rds_rust_ib_alloc_cq(struct ib_device *device, int entries)
{
	/*
	 * IB_POLL_WORKQUEUE, because ib_free_cq() waits for a work item, but not for the end of a
	 * softirq. ib_poll_handler() rearms the completion queue after it has left irq_poll.
	 */
	return ib_alloc_cq_any(device, NULL, entries, IB_POLL_WORKQUEUE);
}

void rds_rust_ib_free_cq(struct ib_cq *cq)
{
	ib_free_cq(cq);
}

int rds_rust_ib_post_reg_mr(struct ib_qp *qp, struct ib_mr *mr, int access, struct ib_cqe *cqe)
{
	struct ib_reg_wr wr = {
		.wr = {
			.wr_cqe = cqe,
			.opcode = IB_WR_REG_MR,
			.send_flags = IB_SEND_SIGNALED,
		},
		.mr = mr,
		.key = mr->rkey,
		.access = access,
	};

	if (rds_rust_fails(RDS_LOSE_REGISTRATION, qp->device))
		return 0;
	return rds_post(qp, &wr.wr, NULL);
}

static bool is_atomic(enum ib_wr_opcode opcode)
{
	return opcode == IB_WR_ATOMIC_CMP_AND_SWP || opcode == IB_WR_ATOMIC_FETCH_AND_ADD ||
	       opcode == IB_WR_MASKED_ATOMIC_CMP_AND_SWP ||
	       opcode == IB_WR_MASKED_ATOMIC_FETCH_AND_ADD;
}

static enum ib_wr_opcode opcode_of(const struct rds_ib_operation *operation)
{
	if (!rds_rust_device_lacks(RDS_IGNORES_MASKS))
		return operation->opcode;
	switch (operation->opcode) {
	case IB_WR_MASKED_ATOMIC_CMP_AND_SWP:
		return IB_WR_ATOMIC_CMP_AND_SWP;
	case IB_WR_MASKED_ATOMIC_FETCH_AND_ADD:
		return IB_WR_ATOMIC_FETCH_AND_ADD;
	default:
		return operation->opcode;
	}
}

/**
 * rds_rust_ib_post_operation() - post an RDMA or atomic operation
 * @qp: the queue pair
 * @operation: the operation
 * @id: the wr_id of its completion
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_ib_post_operation(struct ib_qp *qp, const struct rds_ib_operation *operation, u64 id)
{
	struct ib_sge sge = {
		.addr = operation->address,
		.length = operation->length,
		.lkey = operation->lkey,
	};
	struct ib_send_wr common = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode_of(operation),
		.send_flags = operation->signaled ? IB_SEND_SIGNALED : 0,
	};
	struct ib_rdma_wr rdma = {
		.remote_addr = operation->remote_address,
		.rkey = operation->rkey,
	};

	if (is_atomic(operation->opcode)) {
		struct ib_atomic_wr wr = {
			.wr = common,
			.remote_addr = operation->remote_address,
			.compare_add = operation->compare_add,
			.swap = operation->swap,
			.compare_add_mask = operation->compare_add_mask,
			.swap_mask = operation->swap_mask,
			.rkey = operation->rkey,
		};

		if (rds_rust_device_lacks(RDS_REFUSES_ATOMICS))
			return -EOPNOTSUPP;
		return rds_post(qp, &wr.wr, NULL);
	}

	rdma.wr = common;
	return rds_post(qp, &rdma.wr, NULL);
}

int rds_rust_ib_post_local_inv(struct ib_qp *qp, u32 rkey, struct ib_cqe *cqe)
{
	struct ib_send_wr wr = {
		.wr_cqe = cqe,
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = rkey,
	};

	if (rds_rust_fails(RDS_LOSE_REGISTRATION, qp->device))
		return 0;
	return rds_post(qp, &wr, NULL);
}
