// SPDX-License-Identifier: GPL-2.0
/*
 * C functions for the KUnit suites: a fake RDMA device. It has no port and no wire. Work requests
 * stay in a queue pair until a suite completes them, or until the queue pair enters the error
 * state. Its memory is mapped for a device without a bus. It is not registered, so only the suite
 * uses it.
 */
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "helpers_fake_device.h"

/* Extra entries in a completion queue for stray completions. */
#define RDS_FAKE_SPARE 16

struct rds_fake_pd {
	struct ib_pd pd;
};

/* The functions up to the next heading are called with the lock held. */

void rds_rust_fake_note_change(struct rds_fake *fake)
{
	fake->changes++;
	wake_up_all(&fake->changed);
}

struct rds_fake_qp *rds_rust_fake_find(struct rds_fake *fake, u32 number)
{
	struct rds_fake_qp *qp;

	list_for_each_entry(qp, &fake->qps, list)
		if (qp->qp.qp_num == number)
			return qp;
	return NULL;
}

void rds_rust_fake_complete(struct ib_cq *cq, const struct ib_wc *wc)
{
	struct rds_fake_cq *own = to_cq(cq);

	if (WARN_ON(own->reported - own->polled >= own->size))
		return;
	own->wcs[own->reported++ % own->size] = *wc;
	if (own->armed) {
		own->armed = false;
		cq->comp_handler(cq, cq->cq_context);
	}
}

struct rds_fake_wr *rds_rust_fake_oldest(struct rds_fake_ring *ring)
{
	if (ring->ended == ring->posted)
		return NULL;
	return &ring->wrs[ring->ended % ring->size];
}

bool rds_rust_fake_finish_send(struct rds_fake_qp *qp, int status)
{
	const struct rds_fake_wr *wr = rds_rust_fake_oldest(&qp->sends);
	struct ib_wc wc = { .status = status };

	if (!wr)
		return false;
	qp->sends.ended++;
	wc.wr_id = wr->id;
	if (status == RDS_FAKE_LOST)
		return true;
	if (status != IB_WC_SUCCESS || wr->flags & IB_SEND_SIGNALED)
		rds_rust_fake_complete(qp->qp.send_cq, &wc);
	return true;
}

bool rds_rust_fake_finish_receive(struct rds_fake_qp *qp, enum ib_wc_status status, u32 length)
{
	const struct rds_fake_script *script = &to_fake(qp->qp.device)->script;
	const struct rds_fake_wr *wr = rds_rust_fake_oldest(&qp->receives);
	struct ib_wc wc = {
		.status = status,
		.byte_len = length,
		.opcode = script->receive_opcode ?: IB_WC_RECV,
		.wc_flags = script->receive_flags,
	};

	if (!wr)
		return false;
	qp->receives.ended++;
	wc.wr_id = wr->id;
	rds_rust_fake_complete(qp->qp.recv_cq, &wc);
	return true;
}

/* Flushes the work requests of a queue pair in error, unless the script holds them. */
void rds_rust_fake_flush(struct rds_fake *fake, struct rds_fake_qp *qp)
{
	if (!qp->in_error || fake->script.holds_flush)
		return;
	while (rds_rust_fake_finish_send(qp, IB_WC_WR_FLUSH_ERR))
		;
	while (rds_rust_fake_finish_receive(qp, IB_WC_WR_FLUSH_ERR, 0))
		;
}

void rds_rust_fake_fail(struct rds_fake *fake, struct rds_fake_qp *qp)
{
	qp->in_error = true;
	rds_rust_fake_flush(fake, qp);
}

/*
 * Returns true if this call is the one that fails. Otherwise decrements the number of calls before
 * it.
 */
static bool is_due(u32 *before)
{
	if (*before == 0)
		return true;
	--*before;
	return false;
}

static bool is_local(const struct rds_fake_wr *wr)
{
	return wr->opcode == IB_WR_REG_MR || wr->opcode == IB_WR_LOCAL_INV;
}

/* Completes registrations and invalidations, which no peer takes part in. */
void rds_rust_fake_end_local(struct rds_fake *fake, struct rds_fake_qp *qp)
{
	struct rds_fake_script *script = &fake->script;
	const struct rds_fake_wr *wr;

	while (!qp->in_error && !script->holds_local &&
	       (wr = rds_rust_fake_oldest(&qp->sends)) && is_local(wr)) {
		int status = IB_WC_SUCCESS;

		if (script->local_status && is_due(&script->local_before_status)) {
			status = script->local_status;
			script->local_status = 0;
		}
		rds_rust_fake_finish_send(qp, status);
		if (status != IB_WC_SUCCESS)
			rds_rust_fake_fail(fake, qp);
	}
}

/* Accepts a work request, or fails as the script says. */
static int push(struct rds_fake_ring *ring, struct rds_fake_wr wr, const struct ib_sge *sges,
		int count, u32 *before, int *error)
{
	int err = *error;

	if (err && is_due(before)) {
		*error = 0;
		return err;
	}
	if (ring->posted - ring->ended >= ring->size)
		return -ENOMEM;
	if (count) {
		wr.address = sges->addr;
		wr.length = sges->length;
	}
	ring->wrs[ring->posted++ % ring->size] = wr;
	return 0;
}

/* Operations of the device. */

static int rds_fake_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int rds_fake_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int rds_fake_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			      struct uverbs_attr_bundle *attrs)
{
	struct rds_fake_cq *own = to_cq(cq);

	own->size = attr->cqe + RDS_FAKE_SPARE;
	own->wcs = kcalloc(own->size, sizeof(*own->wcs), GFP_KERNEL);
	return own->wcs ? 0 : -ENOMEM;
}

static int rds_fake_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	kfree(to_cq(cq)->wcs);
	return 0;
}

static int rds_fake_poll_cq(struct ib_cq *cq, int count, struct ib_wc *wcs)
{
	struct rds_fake *fake = to_fake(cq->device);
	struct rds_fake_cq *own = to_cq(cq);
	int got = 0;

	guard(spinlock_irqsave)(&fake->lock);
	while (got < count && own->polled != own->reported)
		wcs[got++] = own->wcs[own->polled++ % own->size];
	return got;
}

static int rds_fake_req_notify_cq(struct ib_cq *cq, enum ib_cq_notify_flags how)
{
	struct rds_fake *fake = to_fake(cq->device);
	struct rds_fake_cq *own = to_cq(cq);

	guard(spinlock_irqsave)(&fake->lock);
	own->armed = !(how & IB_CQ_REPORT_MISSED_EVENTS) || own->polled == own->reported;
	rds_rust_fake_note_change(fake);
	return !own->armed;
}

static void free_qp(struct rds_fake_qp *own)
{
	kfree(own->sends.wrs);
	kfree(own->receives.wrs);
}

static int rds_fake_make_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct rds_fake *fake = to_fake(qp->device);
	struct rds_fake_qp *own = to_qp(qp);

	own->sends.size = attr->cap.max_send_wr;
	own->sends.wrs = kcalloc(own->sends.size, sizeof(*own->sends.wrs), GFP_KERNEL);
	own->receives.size = attr->cap.max_recv_wr;
	own->receives.wrs = kcalloc(own->receives.size, sizeof(*own->receives.wrs), GFP_KERNEL);
	if (!own->sends.wrs || !own->receives.wrs) {
		free_qp(own);
		return -ENOMEM;
	}
	guard(spinlock_irq)(&fake->lock);
	if ((current->flags & (PF_WQ_WORKER | PF_MEMALLOC_NOIO)) == PF_WQ_WORKER)
		fake->made_with_io++;
	qp->qp_num = ++fake->last_qp;
	list_add(&own->list, &fake->qps);
	rds_rust_fake_note_change(fake);
	return 0;
}

static int rds_fake_end_qp(struct ib_qp *qp, struct ib_udata *udata)
{
	struct rds_fake *fake = to_fake(qp->device);
	struct rds_fake_qp *own = to_qp(qp);

	spin_lock_irq(&fake->lock);
	list_del(&own->list);
	rds_rust_fake_note_change(fake);
	spin_unlock_irq(&fake->lock);
	free_qp(own);
	return 0;
}

static int rds_fake_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			      struct ib_udata *udata)
{
	struct rds_fake *fake = to_fake(qp->device);

	if (!(mask & IB_QP_STATE) || attr->qp_state != IB_QPS_ERR)
		return 0;
	guard(spinlock_irq)(&fake->lock);
	rds_rust_fake_fail(fake, to_qp(qp));
	rds_rust_fake_note_change(fake);
	return 0;
}

/* Returns the errors of mlx5, whose driver logs each of them. */
static int rds_fake_refuse(struct rds_fake *fake, const struct ib_send_wr *wr)
{
	int err = 0;

	if (wr->opcode == IB_WR_REG_MR)
		err = reg_wr(wr)->access & IB_ACCESS_REMOTE_ATOMIC ? -EINVAL : 0;
	else if (wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		err = -EOPNOTSUPP;
	if (!err || !fake->script.no_atomics)
		return 0;
	fake->refused++;
	return err;
}

static int rds_fake_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			      const struct ib_send_wr **bad_wr)
{
	struct rds_fake *fake = to_fake(qp->device);
	struct rds_fake_script *script = &fake->script;
	struct rds_fake_qp *own = to_qp(qp);
	int err = 0;

	guard(spinlock_irqsave)(&fake->lock);
	for (; wr && !err; wr = wr->next) {
		const struct rds_fake_wr seen = {
			.id = wr->wr_id,
			.opcode = wr->opcode,
			.flags = wr->send_flags,
		};

		*bad_wr = wr;
		err = rds_fake_refuse(fake, wr);
		if (err)
			break;
		err = push(&own->sends, seen, wr->sg_list, wr->num_sge,
			   &script->sends_before_error, &script->send_error);
	}
	rds_rust_fake_end_local(fake, own);
	rds_rust_fake_flush(fake, own);
	rds_rust_fake_note_change(fake);
	return err;
}

static int rds_fake_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			      const struct ib_recv_wr **bad_wr)
{
	struct rds_fake *fake = to_fake(qp->device);
	struct rds_fake_script *script = &fake->script;
	struct rds_fake_qp *own = to_qp(qp);
	int err = 0;

	guard(spinlock_irqsave)(&fake->lock);
	for (; wr && !err; wr = wr->next) {
		const struct rds_fake_wr seen = { .id = wr->wr_id };

		*bad_wr = wr;
		err = push(&own->receives, seen, wr->sg_list, wr->num_sge,
			   &script->receives_before_error, &script->receive_error);
	}
	rds_rust_fake_flush(fake, own);
	rds_rust_fake_note_change(fake);
	return err;
}

static struct ib_mr *rds_fake_alloc_mr(struct ib_pd *pd, enum ib_mr_type type, u32 pages)
{
	struct rds_fake *fake = to_fake(pd->device);
	struct ib_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	if (!mr)
		return ERR_PTR(-ENOMEM);
	guard(spinlock_irq)(&fake->lock);
	fake->regions++;
	mr->rkey = ++fake->regions_made << 8;
	mr->lkey = mr->rkey;
	return mr;
}

static int rds_fake_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	struct rds_fake *fake = to_fake(mr->device);
	int err;

	guard(spinlock_irq)(&fake->lock);
	err = fake->script.dereg_error;
	if (err)
		return err;
	fake->regions--;
	rds_rust_fake_note_change(fake);
	kfree(mr);
	return 0;
}

static int set_page(struct ib_mr *mr, u64 address)
{
	return 0;
}

static int rds_fake_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int count,
			      unsigned int *offset)
{
	return ib_sg_to_pages(mr, sg, count, offset, set_page);
}

static void rds_fake_drain(struct ib_qp *qp)
{
	struct rds_fake *fake = to_fake(qp->device);

	guard(spinlock_irq)(&fake->lock);
	fake->drained++;
}

/* Adds drain functions of the driver, like those of mlx4, mlx5 and hns. */
void rds_rust_fake_set_own_drain(struct ib_device *device)
{
	device->ops.drain_sq = rds_fake_drain;
	device->ops.drain_rq = rds_fake_drain;
}

static int rds_fake_query_port(struct ib_device *device, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_EDR;
	/* The cache of the RDMA core does not know the device. */
	attr->subnet_prefix = 1;
	return 0;
}

/* Adds a port of 100 Gbit/s. */
void rds_rust_fake_add_port(struct ib_device *device)
{
	device->phys_port_cnt = 1;
	device->ops.query_port = rds_fake_query_port;
}

static const struct ib_device_ops rds_fake_ops = {
	.alloc_pd = rds_fake_alloc_pd,
	.dealloc_pd = rds_fake_dealloc_pd,
	.create_cq = rds_fake_create_cq,
	.destroy_cq = rds_fake_destroy_cq,
	.poll_cq = rds_fake_poll_cq,
	.req_notify_cq = rds_fake_req_notify_cq,
	.create_qp = rds_fake_make_qp,
	.destroy_qp = rds_fake_end_qp,
	.modify_qp = rds_fake_modify_qp,
	.post_send = rds_fake_post_send,
	.post_recv = rds_fake_post_recv,
	.alloc_mr = rds_fake_alloc_mr,
	.dereg_mr = rds_fake_dereg_mr,
	.map_mr_sg = rds_fake_map_mr_sg,
	INIT_RDMA_OBJ_SIZE(ib_pd, rds_fake_pd, pd),
	INIT_RDMA_OBJ_SIZE(ib_cq, rds_fake_cq, cq),
	INIT_RDMA_OBJ_SIZE(ib_qp, rds_fake_qp, qp),
};

/**
 * rds_rust_fake_alloc() - create a fake device
 * @soft_iwarp: make the module treat the device as soft-iWARP
 * @direct: use no bounce buffers on any machine
 *
 * May sleep.
 *
 * Return: the device, or NULL.
 */
struct ib_device *rds_rust_fake_alloc(bool soft_iwarp, bool direct)
{
	struct rds_fake *fake = ib_alloc_device(rds_fake, device);

	if (!fake)
		return NULL;
	if (rds_rust_fake_dma_create(&fake->dma, direct)) {
		ib_dealloc_device(&fake->device);
		return NULL;
	}
	fake->device.dma_device = &fake->dma.faux->dev;
	spin_lock_init(&fake->lock);
	INIT_LIST_HEAD(&fake->qps);
	init_waitqueue_head(&fake->changed);
	ib_set_device_ops(&fake->device, &rds_fake_ops);
	fake->device.port_data = fake->ports;
	if (soft_iwarp) {
		fake->device.ops.driver_id = RDMA_DRIVER_SIW;
		fake->ports[1].immutable.core_cap_flags = RDMA_CORE_PORT_IWARP;
	}
	strscpy(fake->device.name, "rds_fake", sizeof(fake->device.name));
	/* No device of the kernel has this index. */
	fake->device.index = U32_MAX - 1;
	fake->device.node_type = RDMA_NODE_IB_CA;
	fake->device.attrs = (struct ib_device_attr) {
		.kernel_cap_flags = IBK_LOCAL_DMA_LKEY,
		.device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS,
		.max_qp_wr = 4096,
		.max_cqe = 8192,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.max_fast_reg_page_list_len = 512,
		.atomic_cap = IB_ATOMIC_HCA,
	};
	/* A registered device has one reference, too. */
	refcount_set(&fake->device.refcount, 1);
	return &fake->device;
}

/**
 * rds_rust_fake_free() - free a fake device
 * @device: the device
 *
 * Sleeps until the last reference is dropped.
 */
void rds_rust_fake_free(struct ib_device *device)
{
	ib_device_put(device);
	wait_for_completion(&device->unreg_completion);
	rds_rust_fake_dma_destroy(&to_fake(device)->dma);
	device->port_data = NULL;
	ib_dealloc_device(device);
}
