// SPDX-License-Identifier: GPL-2.0
/* C functions for the RDMA wrappers of kapi/. */
#include <linux/atomic.h>
#include <linux/dma-map-ops.h>
#include <linux/iommu-dma.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/string.h>
#include <linux/swiotlb.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#include "helpers_fault.h"
#include "helpers_rdma.h"

/* The module of C RDS with this transport. */
MODULE_ALIAS("rds_rdma");

/* device */

int rds_rust_ib_node_type(const struct ib_device *device)
{
	return device->node_type;
}

int rds_rust_ib_numa_node(struct ib_device *device)
{
	return ibdev_to_node(device);
}

/**
 * rds_rust_ib_name() - copy the name of a device
 * @device: the device
 * @name: buffer for the name
 *
 * An administrator may rename the device at any time, so the name is copied.
 */
void rds_rust_ib_name(const struct ib_device *device, char name[IB_DEVICE_NAME_MAX])
{
	strscpy(name, device->name, IB_DEVICE_NAME_MAX);
}

bool rds_rust_ib_device_try_get(struct ib_device *device)
{
	return ib_device_try_get(device);
}

u32 rds_rust_ib_device_index(const struct ib_device *device)
{
	return device->index;
}

void rds_rust_ib_limits(const struct ib_device *device, struct rds_rust_ib_limits *limits)
{
	const struct ib_device_attr *attrs = &device->attrs;

	limits->max_qp_wr = attrs->max_qp_wr;
	limits->max_cqe = attrs->max_cqe;
	limits->max_qp_rd_atom = attrs->max_qp_rd_atom;
	limits->max_qp_init_rd_atom = attrs->max_qp_init_rd_atom;
	limits->max_fast_reg_page_list_len = attrs->max_fast_reg_page_list_len;
	limits->iwarp = rdma_protocol_iwarp(device, 1);
	limits->mem_mgt_extensions = attrs->device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS;
	limits->atomics = attrs->atomic_cap != IB_ATOMIC_NONE;
	limits->masked_atomics = attrs->masked_atomic_cap != IB_ATOMIC_NONE;
	limits->virt_dma = ib_uses_virt_dma((struct ib_device *)device);
	limits->reads_run_on = device->ops.driver_id == RDMA_DRIVER_SIW;
	if (rds_rust_device_lacks(RDS_LACKS_REGISTRATION))
		limits->mem_mgt_extensions = false;
	if (rds_rust_device_lacks(RDS_LACKS_ATOMICS)) {
		limits->atomics = false;
		limits->masked_atomics = false;
	}
	if (rds_rust_device_lacks(RDS_LACKS_INITIATOR_DEPTH))
		limits->max_qp_init_rd_atom = 0;
	if (rds_rust_device_lacks(RDS_LACKS_RESPONDER_RESOURCES))
		limits->max_qp_rd_atom = 0;
	if (rds_rust_device_lacks(RDS_LACKS_MASKED_ATOMICS | RDS_IGNORES_MASKS))
		limits->masked_atomics = true;
	if (rds_rust_device_lacks(RDS_LACKS_REGION_PAGES))
		limits->max_fast_reg_page_list_len = 8;
}

/**
 * rds_rust_ib_port_mbits() - return the speed of the slowest active port
 * @device: the device
 *
 * Software devices report the configured speed of their network device, so they are ignored.
 *
 * Return: the speed in Mbit/s, or 0 if it is not known.
 */
u32 rds_rust_ib_port_mbits(struct ib_device *device)
{
	struct ib_port_speed_info speed;
	struct ib_port_attr attr;
	u32 mbits = 0;
	u32 port;

	if (ib_uses_virt_dma(device))
		return 0;
	rdma_for_each_port(device, port) {
		if (ib_query_port(device, port, &attr) || attr.state != IB_PORT_ACTIVE ||
		    ib_port_attr_to_speed_info(&attr, &speed) || speed.rate <= 0)
			continue;
		/* The unit of rate is 100 Mbit/s. */
		if (!mbits || speed.rate * 100 < mbits)
			mbits = speed.rate * 100;
	}
	return mbits;
}

/* protection domain */

struct ib_pd *rds_rust_ib_alloc_pd(struct ib_device *device)
{
	return ib_alloc_pd(device, 0);
}

void rds_rust_ib_dealloc_pd(struct ib_pd *pd)
{
	ib_dealloc_pd(pd);
}

u32 rds_rust_ib_pd_lkey(const struct ib_pd *pd)
{
	return pd->local_dma_lkey;
}

/* completion queue and queue pair */

/**
 * rds_rust_ib_create_cq() - create a completion queue
 * @device: the device
 * @handler: called for completions
 * @event_handler: called for asynchronous events
 * @context: argument of the handlers
 * @cqe: number of entries
 * @vector: set to the completion vector
 *
 * Uses completion vectors in turn, so that connections spread over the device's interrupts.
 *
 * Return: the completion queue, or an error pointer.
 */
struct ib_cq *rds_rust_ib_create_cq(struct ib_device *device, ib_comp_handler handler,
				    void (*event_handler)(struct ib_event *, void *), void *context,
				    u32 cqe, u32 *vector)
{
	static atomic_t next_vector;
	struct ib_cq_init_attr attr = { .cqe = cqe };

	if (device->num_comp_vectors > 1)
		attr.comp_vector = (u32)atomic_inc_return(&next_vector) %
				   (u32)min_t(int, device->num_comp_vectors, num_online_cpus());
	*vector = attr.comp_vector;
	return ib_create_cq(device, handler, event_handler, context, &attr);
}

void rds_rust_ib_destroy_cq(struct ib_cq *cq)
{
	ib_destroy_cq(cq);
}

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
/* Removes completions that fault injection loses. Sends are numbered as in kapi/rdma/qp_ring.rs. */
static int rds_lose_completions(const struct ib_cq *cq, struct ib_wc *wcs, int count)
{
	int i, kept = 0;

	for (i = 0; i < count; i++) {
		if (wcs[i].wr_id >> 31 == 1 && rds_rust_fails(RDS_LOSE_COMPLETION, cq->device))
			continue;
		if (kept != i)
			wcs[kept] = wcs[i];
		kept++;
	}
	return count < 0 ? count : kept;
}
#else
static inline int rds_lose_completions(const struct ib_cq *cq, struct ib_wc *wcs, int count)
{
	return count;
}
#endif

int rds_rust_ib_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wcs)
{
	return rds_lose_completions(cq, wcs, ib_poll_cq(cq, count, wcs));
}

/**
 * rds_rust_ib_rearm_cq() - request an interrupt for the next completion
 * @cq: the completion queue
 *
 * Return: true if a completion may have arrived before, so that the caller has to poll again.
 */
bool rds_rust_ib_rearm_cq(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) > 0;
}

int rds_rust_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad_wr)
{
	return rds_post(qp, wr, bad_wr);
}

/**
 * rds_rust_ib_post_last_send() - post the final send of a closed queue pair
 * @qp: the queue pair
 * @wr: the work request
 * @bad_wr: set to the refused work request
 *
 * A refused request would be lost here, so no faults are injected.
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_ib_post_last_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			       const struct ib_send_wr **bad_wr)
{
	return ib_post_send(qp, wr, bad_wr);
}

int rds_rust_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad_wr)
{
	return ib_post_recv(qp, wr, bad_wr);
}

/**
 * rds_rust_ib_set_rnr_timer() - set the RNR NAK timer of a connected queue pair
 * @qp: the queue pair
 * @timer: code of the delay, as in the IBTA specification
 *
 * May sleep.
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_ib_set_rnr_timer(struct ib_qp *qp, u8 timer)
{
	struct ib_qp_attr attr = { .min_rnr_timer = timer };

	return ib_modify_qp(qp, &attr, IB_QP_MIN_RNR_TIMER);
}

/**
 * rds_rust_ib_qp_to_error() - put a queue pair into the error state
 * @qp: the queue pair
 *
 * May sleep.
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_ib_qp_to_error(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}

u32 rds_rust_ib_qpn(const struct ib_qp *qp)
{
	return qp->qp_num;
}

/**
 * rds_rust_ib_peer_qpn() - get the number of the peer's queue pair
 * @qp: a connected queue pair
 *
 * May sleep.
 *
 * Return: the number, or 0 if the device does not tell.
 */
u32 rds_rust_ib_peer_qpn(struct ib_qp *qp)
{
	struct ib_qp_init_attr init = {};
	struct ib_qp_attr attr = {};

	return ib_query_qp(qp, &attr, IB_QP_DEST_QPN, &init) ? 0 : attr.dest_qp_num;
}

static void rds_poll_kick(struct irq_work *work)
{
	irq_poll_sched(&container_of(work, struct rds_poll, kick)->iop);
}

void rds_rust_poll_init(struct rds_poll *poll, int budget, irq_poll_fn *fn)
{
	irq_poll_init(&poll->iop, budget, fn);
	init_irq_work(&poll->kick, rds_poll_kick);
}

/**
 * rds_rust_poll_sched() - schedule polling in a softirq
 * @poll: the poll context
 *
 * Software devices complete in process context with interrupts disabled. A softirq that is raised
 * there runs in ksoftirqd, which costs two context switches for each completion. A softirq that is
 * raised in an interrupt runs at its end.
 */
void rds_rust_poll_sched(struct rds_poll *poll)
{
	if (in_interrupt())
		irq_poll_sched(&poll->iop);
	else
		irq_work_queue(&poll->kick);
}

/**
 * rds_rust_poll_sync() - wait for earlier calls of rds_rust_poll_sched()
 * @poll: the poll context
 *
 * Afterwards no earlier call has an effect. May sleep.
 */
void rds_rust_poll_sync(struct rds_poll *poll)
{
	irq_work_sync(&poll->kick);
}

/* memory */

int rds_rust_ib_dma_map(struct ib_device *device, void *memory, size_t size, u64 *address)
{
	*address = ib_dma_map_single(device, memory, size, DMA_BIDIRECTIONAL);
	return ib_dma_mapping_error(device, *address);
}

/**
 * rds_rust_ib_dma_unmap() - unmap memory without synchronising it
 * @device: the device
 * @address: DMA address
 * @size: size in bytes
 *
 * Data from the device was already synchronised by rds_rust_ib_dma_sync_for_cpu(): copied from a
 * bounce buffer, or made visible in caches. Synchronising all of the memory here would overwrite
 * later changes by the CPU.
 */
void rds_rust_ib_dma_unmap(struct ib_device *device, u64 address, size_t size)
{
	if (!ib_uses_virt_dma(device))
		dma_unmap_single_attrs(device->dma_device, address, size, DMA_BIDIRECTIONAL,
				       DMA_ATTR_SKIP_CPU_SYNC);
}

#ifdef CONFIG_SWIOTLB
static size_t swiotlb_bytes(struct device *dma)
{
	return READ_ONCE(dma->dma_io_tlb_mem->nslabs) << IO_TLB_SHIFT;
}
#endif

/**
 * rds_rust_ib_dma_bounce_bytes() - return the total size of bounce buffers
 * @device: the device
 * @address: DMA address of a mapping
 *
 * A mapping of whole pages behind an IOMMU is never a bounce buffer. Mappings of non-coherent
 * devices are synchronised for each write anyway.
 *
 * Return: the size in bytes if the mapping uses a bounce buffer, otherwise 0.
 */
size_t rds_rust_ib_dma_bounce_bytes(struct ib_device *device, u64 address)
{
#ifdef CONFIG_SWIOTLB
	struct device *dma = device->dma_device;

	if (!ib_uses_virt_dma(device) && dma->dma_io_tlb_mem && !use_dma_iommu(dma) &&
	    dev_is_dma_coherent(dma) && dma_need_sync(dma, address))
		return swiotlb_bytes(dma);
#endif
	return 0;
}

/**
 * rds_rust_ib_bounce_bytes() - return the total size of bounce buffers
 * @device: the device
 *
 * Any context.
 *
 * Return: the size in bytes if the device accesses all memory through them, otherwise 0.
 */
size_t rds_rust_ib_bounce_bytes(struct ib_device *device)
{
#ifdef CONFIG_SWIOTLB
	struct device *dma = device->dma_device;

	if (!ib_uses_virt_dma(device) && is_swiotlb_force_bounce(dma) && !use_dma_iommu(dma))
		return swiotlb_bytes(dma);
#endif
	return 0;
}

/**
 * rds_rust_ib_operation_bounce_bytes() - return the total size of bounce buffers
 * @device: the device
 *
 * Behind an IOMMU the kernel uses bounce buffers for parts of pages that an untrusted device is to
 * access. Any context.
 *
 * Return: the size in bytes if the device may access memory of programs through them, otherwise 0.
 */
size_t rds_rust_ib_operation_bounce_bytes(struct ib_device *device)
{
#ifdef CONFIG_SWIOTLB
	struct device *dma = device->dma_device;
	bool bounces;

	if (ib_uses_virt_dma(device) || !dma->dma_io_tlb_mem)
		return 0;
	if (use_dma_iommu(dma))
		bounces = dev_is_pci(dma) && to_pci_dev(dma)->untrusted;
	else
		bounces = is_swiotlb_force_bounce(dma) || dma_addressing_limited(dma);
	if (bounces)
		return swiotlb_bytes(dma);
#endif
	return 0;
}

void rds_rust_ib_dma_sync_for_cpu(struct ib_device *device, u64 address, size_t size)
{
	ib_dma_sync_single_for_cpu(device, address, size, DMA_BIDIRECTIONAL);
}

void rds_rust_ib_dma_sync_for_device(struct ib_device *device, u64 address, size_t size)
{
	ib_dma_sync_single_for_device(device, address, size, DMA_BIDIRECTIONAL);
}
