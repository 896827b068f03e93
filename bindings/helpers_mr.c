// SPDX-License-Identifier: GPL-2.0
/* C functions for memory of programs that peers may use, as helpers.c has them for the others. */
#include <linux/capability.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "helpers_fault.h"
#include "helpers_mr.h"

/*
 * Charges the calling process, as far as RLIMIT_MEMLOCK lets it, as user verbs do (ib_umem_get_va()).
 * EPERM if it may lock nothing at all, ENOMEM if it would be too much.
 */
int rds_rust_pin_charge(struct rds_rust_pin_charge *charge, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct mm_struct *mm = current->mm;
	u64 pinned;

	if (!mm)
		return -EFAULT;
	if (!can_do_mlock())
		return -EPERM;
	pinned = (u64)atomic64_add_return((s64)pages, &mm->pinned_vm);
	if (pinned > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub((s64)pages, &mm->pinned_vm);
		return -ENOMEM;
	}
	mmgrab(mm);
	*charge = (struct rds_rust_pin_charge){ .mm = mm, .pages = pages };
	return 0;
}

/* May sleep. */
void rds_rust_pin_uncharge(struct rds_rust_pin_charge *charge)
{
	atomic64_sub((s64)charge->pages, &charge->mm->pinned_vm);
	mmdrop(charge->mm);
}

/* How many were pinned, which may be fewer, or an error if none was. Sleeps. */
long rds_rust_pin_pages(unsigned long address, unsigned int count, bool writable, struct page **pages)
{
	if (rds_rust_fails(RDS_FAIL_PIN, NULL))
		return -EOPNOTSUPP;
	return pin_user_pages_fast(address, (int)count,
				   FOLL_LONGTERM | (writable ? FOLL_WRITE : 0), pages);
}

/* Sleeps. */
void rds_rust_unpin_pages(struct page **pages, unsigned long count, bool dirty)
{
	unpin_user_pages_dirty_lock(pages, count, dirty);
}

/* A bounce buffer is shorter than what most devices take in one piece. */
static size_t max_segment(struct ib_device *device)
{
	size_t most = ib_dma_max_seg_size(device);

	if (ib_uses_virt_dma(device))
		return most;
	return min(most, dma_max_mapping_size(device->dma_device));
}

/* Maps @size bytes from @offset in the first of the pages on. Sleeps. */
int rds_rust_ib_map_pages(struct ib_device *device, struct page **pages, unsigned int count,
			  unsigned int offset, unsigned long size, bool writable, bool shared,
			  struct rds_ib_mapping *mapping)
{
	int err;

	if (rds_rust_fails(RDS_FAIL_MAP, device))
		return -ENOMEM;
	mapping->direction = writable ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
	/*
	 * Programs may use a cache line for more than one thing at a time. What is not shared goes
	 * to a bounce buffer and back when it is mapped and unmapped.
	 */
	mapping->attrs = shared ? DMA_ATTR_REQUIRE_COHERENT : DMA_ATTR_DEBUGGING_IGNORE_CACHELINES;
	err = sg_alloc_table_from_pages_segment(&mapping->table, pages, count, offset, size,
						(unsigned int)max_segment(device), GFP_KERNEL);
	if (err)
		return err;
	err = ib_dma_map_sgtable_attrs(device, &mapping->table, mapping->direction, mapping->attrs);
	if (err)
		sg_free_table(&mapping->table);
	return err;
}

/*
 * Whether the device sees memory in between that is not of the mapping, so that no region has all of it: a bounce buffer
 * does not begin where in a page the memory does.
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

/* In how many pieces the device is to be told of the memory: 0 if as a region. @few: so many cost less than that. */
unsigned int rds_rust_ib_mapping_pieces(const struct rds_ib_mapping *mapping, unsigned int few)
{
	return mapping->table.nents <= few || has_gaps(mapping) ? mapping->table.nents : 0;
}

/* Has room for all pieces. They get no keys. */
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

/*
 * Gives the region the pages, and another key, so that who knows the old one cannot use it. Peers count
 * from the start of the first page. Not ib_map_mr_sg_zbva(): with that the bounds would count from there,
 * too, wherever the memory begins.
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

/* Where its memory begins, as both keys count. */
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
	 * ib_free_cq() waits for a work item, but not for a softirq to its end: ib_poll_handler() asks for
	 * another interrupt after it has left irq_poll.
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

/* Its completion has @id. */
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
	} else {
		struct ib_rdma_wr wr = {
			.wr = common,
			.remote_addr = operation->remote_address,
			.rkey = operation->rkey,
		};

		return rds_post(qp, &wr.wr, NULL);
	}
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
