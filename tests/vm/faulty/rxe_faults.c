// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of soft-RoCE that tests request through debugfs: rxe_faults/NAME/.
 *
 * A fault occurs at its next `times` opportunities, without end if that is negative, after `skip`
 * more opportunities. `seen` counts its occurrences. Completions and posts fail only for connected
 * queue pairs of the kernel, so the connection manager keeps working.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/irq_work.h>
#include <linux/timer.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_mad.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_queue.h"
#include "rxe_faults.h"

enum fault_name {
	LOSE_SEND,
	LOSE_RECV,
	LOSE_FLUSH,
	DOUBLE_SEND,
	DOUBLE_RECV,
	LATE,
	LATE_FLUSH,
	HARD_IRQ,
	HARD_EVENT,
	POISON,
	CQ_ERROR,
	QP_FATAL,
	POST_SEND,
	POST_RECV,
	REG_MR,
	LOCAL_INV,
	MODIFY_QP,
	CREATE_QP,
	SLOW_QP,
	SLOW_MR,
	SCRIBBLE,
	UNMAPPED_SEND,
	UNMAPPED_RECV,
	UNMAPPED_REGION,
	CM_DROP,
	CM_DELAY,
	CM_DOUBLE,
	FAULTS,
};

static struct {
	const char *name;
	atomic_t times;
	atomic_t skip;
	atomic_t seen;
} faults[FAULTS] = {
	[LOSE_SEND].name = "lose_send",
	[LOSE_RECV].name = "lose_recv",
	[LOSE_FLUSH].name = "lose_flush",
	[DOUBLE_SEND].name = "double_send",
	[DOUBLE_RECV].name = "double_recv",
	[LATE].name = "late",
	[LATE_FLUSH].name = "late_flush",
	[HARD_IRQ].name = "hard_irq",
	[HARD_EVENT].name = "hard_event",
	[POISON].name = "poison",
	[CQ_ERROR].name = "cq_error",
	[QP_FATAL].name = "qp_fatal",
	[POST_SEND].name = "post_send",
	[POST_RECV].name = "post_recv",
	[REG_MR].name = "reg_mr",
	[LOCAL_INV].name = "local_inv",
	[MODIFY_QP].name = "modify_qp",
	[CREATE_QP].name = "create_qp",
	[SLOW_QP].name = "slow_qp",
	[SLOW_MR].name = "slow_mr",
	[SCRIBBLE].name = "scribble",
	[UNMAPPED_SEND].name = "unmapped_send",
	[UNMAPPED_RECV].name = "unmapped_recv",
	[UNMAPPED_REGION].name = "unmapped_region",
	[CM_DROP].name = "cm_drop",
	[CM_DELAY].name = "cm_delay",
	[CM_DOUBLE].name = "cm_double",
};

/* Size of the header of a frame. */
#define HEADER_BYTES 48
/* Bit of an address that no device has. */
#define NOWHERE BIT_ULL(62)

static struct dentry *folder;
/* Index of the only device that fails. 0: all devices. */
static u32 device;
/* Delay of late completions, slow calls, and messages of the connection manager. */
static u32 late_ms = 20;
/* Late completions come in another order: of the newest queue first, its receives before sends. */
static u32 turned;
/* Number of completions that came before an older one of another queue pair. */
static atomic_t overtook;
/* The device neither completes nor accepts anything. */
static u32 dead;
/* Attribute of the messages of the connection manager that fail, such as 0x10 for REQ. */
static u32 cm_attribute;

static bool concerns(const struct ib_device *dev)
{
	return !device || device == dev->index;
}

static bool occurs(enum fault_name name)
{
	if (!atomic_read(&faults[name].times) || atomic_dec_if_positive(&faults[name].skip) >= 0)
		return false;
	if (atomic_read(&faults[name].times) > 0 && atomic_dec_if_positive(&faults[name].times) < 0)
		return false;
	atomic_inc(&faults[name].seen);
	return true;
}

static bool may_fail(struct rxe_qp *qp)
{
	return qp_type(qp) == IB_QPT_RC && !qp->is_user && concerns(qp->ibqp.device);
}

static bool is_dead(struct rxe_qp *qp)
{
	return READ_ONCE(dead) && may_fail(qp);
}

/* Interrupts */

/* A call of a handler: of events of a queue pair or of a completion queue, or of completions. */
struct interrupt {
	struct irq_work work;
	struct rxe_qp *qp;
	struct rxe_cq *cq;
	struct ib_event event;
	struct rcu_head rcu;
};

static void call_handler(struct interrupt *this)
{
	struct rxe_cq *cq = this->cq;

	if (this->qp)
		this->qp->ibqp.event_handler(&this->event, this->qp->ibqp.qp_context);
	else if (this->event.device)
		cq->ibcq.event_handler(&this->event, cq->ibcq.cq_context);
	else
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

static void interrupt(struct irq_work *work)
{
	struct interrupt *this = container_of(work, struct interrupt, work);

	WARN_ON_ONCE(!in_hardirq());
	call_handler(this);
	if (this->qp)
		rxe_put(this->qp);
	else
		rxe_put(this->cq);
	/* The caller still accesses it. */
	kfree_rcu(this, rcu);
}

static void call_in_interrupt(struct interrupt *call)
{
	struct interrupt *this = kmemdup(call, sizeof(*call), GFP_ATOMIC);

	if (!this || !(this->qp ? rxe_get(this->qp) : rxe_get(this->cq))) {
		kfree(this);
		call_handler(call);
		return;
	}
	this->work = IRQ_WORK_INIT_HARD(interrupt);
	irq_work_queue(&this->work);
}

void rxe_fault_notify(struct rxe_cq *cq)
{
	struct interrupt call = { .cq = cq };

	if (!cq->is_user && concerns(cq->ibcq.device) && occurs(HARD_IRQ))
		call_in_interrupt(&call);
	else
		call_handler(&call);
}

static void report(struct interrupt *call, bool may_interrupt)
{
	if (may_interrupt && occurs(HARD_EVENT))
		call_in_interrupt(call);
	else
		call_handler(call);
}

void rxe_fault_event(struct ib_event *event, struct ib_qp *ibqp)
{
	struct interrupt call = { .qp = to_rqp(ibqp), .event = *event };

	report(&call, may_fail(call.qp));
}

static void report_qp(struct ib_qp *ibqp, enum ib_event_type type)
{
	struct ib_event event = { .device = ibqp->device, .element.qp = ibqp, .event = type };

	if (ibqp->event_handler)
		rxe_fault_event(&event, ibqp);
}

static void report_cq(struct rxe_cq *cq, enum ib_event_type type)
{
	struct interrupt call = { .cq = cq };

	call.event = (struct ib_event){ .device = cq->ibcq.device, .element.cq = &cq->ibcq, .event = type };
	if (cq->ibcq.event_handler)
		report(&call, true);
}

/* Completions */

struct held_cqe {
	struct list_head list;
	struct rxe_cq *cq;
	struct rxe_cqe cqe;
	int solicited;
	bool is_recv;
};

static LIST_HEAD(held);
/* Held while completions are passed on, so that none overtakes those of its queue. */
static DEFINE_SPINLOCK(held_lock);
static void release_held(struct timer_list *timer);
static DEFINE_TIMER(held_timer, release_held);

static void release_one(struct held_cqe *one)
{
	if (list_first_entry(&held, struct held_cqe, list)->cqe.ibwc.qp != one->cqe.ibwc.qp)
		atomic_inc(&overtook);
	list_del(&one->list);
	rxe_cq_post_now(one->cq, &one->cqe, one->solicited);
	rxe_put(one->cq);
	kfree(one);
}

static void release_of(struct rxe_cq *cq, bool is_recv)
{
	struct held_cqe *one, *next;

	list_for_each_entry_safe(one, next, &held, list)
		if (one->cq == cq && one->is_recv == is_recv)
			release_one(one);
}

static void release_held(struct timer_list *timer)
{
	unsigned long flags;

	spin_lock_irqsave(&held_lock, flags);
	while (!list_empty(&held)) {
		if (turned) {
			struct rxe_cq *cq = list_last_entry(&held, struct held_cqe, list)->cq;

			/* The queue itself must not go while its entries are released. */
			if (WARN_ON_ONCE(!rxe_get(cq)))
				break;
			release_of(cq, true);
			release_of(cq, false);
			rxe_put(cq);
		} else {
			release_one(list_first_entry(&held, struct held_cqe, list));
		}
	}
	spin_unlock_irqrestore(&held_lock, flags);
}

/* Returns true if an earlier completion of the queue is held. */
static bool holds(struct rxe_cq *cq)
{
	struct held_cqe *one;

	list_for_each_entry(one, &held, list)
		if (one->cq == cq)
			return true;
	return false;
}

static int post_or_hold(struct rxe_cq *cq, struct rxe_cqe *cqe, int solicited, bool late)
{
	struct held_cqe *one;
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&held_lock, flags);
	if (!late && !holds(cq)) {
		err = rxe_cq_post_now(cq, cqe, solicited);
		goto out;
	}
	one = kzalloc(sizeof(*one), GFP_ATOMIC);
	if (WARN_ON_ONCE(!one || !rxe_get(cq))) {
		kfree(one);
		err = -ENOMEM;
		goto out;
	}
	one->cq = cq;
	one->cqe = *cqe;
	one->solicited = solicited;
	one->is_recv = cqe->ibwc.status == IB_WC_SUCCESS && cqe->ibwc.opcode & IB_WC_RECV;
	list_add_tail(&one->list, &held);
	if (!timer_pending(&held_timer))
		mod_timer(&held_timer, jiffies + msecs_to_jiffies(late_ms));
out:
	spin_unlock_irqrestore(&held_lock, flags);
	return err;
}

/* A device is only reliable about the status and the work request of a completion in error. */
static void poison(struct ib_wc *wc)
{
	wc->opcode = 0xfe;
	wc->byte_len = ~0;
	wc->wc_flags = ~0;
	wc->ex.invalidate_rkey = ~0;
	wc->src_qp = ~0;
}

/* Replaces the driver's function, see rxe_cq_post_now(). The caller has a reference to the queue. */
int rxe_cq_post(struct rxe_cq *cq, struct rxe_cqe *cqe, int solicited)
{
	struct ib_wc *wc = &cqe->ibwc;
	bool succeeds = wc->status == IB_WC_SUCCESS;
	bool flush = wc->status == IB_WC_WR_FLUSH_ERR;
	bool is_recv = wc->opcode & IB_WC_RECV;
	int err, i, copies;

	if (cq->is_user || !wc->qp || !may_fail(to_rqp(wc->qp)))
		return rxe_cq_post_now(cq, cqe, solicited);
	if (READ_ONCE(dead) || (flush && occurs(LOSE_FLUSH)))
		return 0;
	/* A peer does not miss a bare header, so only frames with data are lost. */
	if (succeeds && (is_recv ? wc->byte_len > HEADER_BYTES && occurs(LOSE_RECV) : occurs(LOSE_SEND)))
		return 0;
	if (succeeds && occurs(CQ_ERROR)) {
		report_cq(cq, IB_EVENT_CQ_ERR);
		return -EBUSY;
	}
	if (succeeds && occurs(QP_FATAL))
		report_qp(wc->qp, IB_EVENT_QP_FATAL);
	if (!succeeds && occurs(POISON))
		poison(wc);
	copies = succeeds && occurs(is_recv ? DOUBLE_RECV : DOUBLE_SEND) ? 2 : 1;
	for (i = 0; i < copies; i++) {
		bool late = occurs(LATE) || (flush && occurs(LATE_FLUSH));

		err = post_or_hold(cq, cqe, solicited, late);
		if (err)
			return err;
	}
	return 0;
}

/* Work requests */

/* Requests that the device has accepted are before the one that fails. */
int rxe_fault_post_send(struct rxe_qp *qp, bool behind)
{
	if (is_dead(qp))
		return -EIO;
	return behind && may_fail(qp) && occurs(POST_SEND) ? -ENOMEM : 0;
}

int rxe_fault_post_recv(struct rxe_qp *qp, bool behind)
{
	if (is_dead(qp))
		return -EIO;
	return behind && may_fail(qp) && occurs(POST_RECV) ? -ENOMEM : 0;
}

const struct ib_recv_wr *rxe_fault_recv(struct rxe_qp *qp, const struct ib_recv_wr *wr,
					struct rxe_seen_recv *seen)
{
	if (!wr->num_sge || wr->num_sge > RXE_SEEN_SGES || !may_fail(qp) || !occurs(UNMAPPED_RECV))
		return wr;
	seen->wr = *wr;
	seen->wr.sg_list = seen->sges;
	memcpy(seen->sges, wr->sg_list, wr->num_sge * sizeof(*seen->sges));
	seen->sges[0].addr |= NOWHERE;
	return &seen->wr;
}

void rxe_fault_send_memory(struct rxe_qp *qp, struct rxe_send_wqe *wqe)
{
	if (wqe->dma.num_sge && !(wqe->wr.send_flags & IB_SEND_INLINE) && may_fail(qp) && occurs(UNMAPPED_SEND))
		wqe->dma.sge[0].addr |= NOWHERE;
}

/* Only moves to the error state fail. */
int rxe_fault_modify(struct rxe_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	if (is_dead(qp))
		return -EIO;
	if (!(mask & IB_QP_STATE) || attr->qp_state != IB_QPS_ERR)
		return 0;
	return may_fail(qp) && occurs(MODIFY_QP) ? -EIO : 0;
}

int rxe_fault_region(struct rxe_qp *qp, enum ib_wr_opcode opcode)
{
	return may_fail(qp) && occurs(opcode == IB_WR_REG_MR ? REG_MR : LOCAL_INV) ? -EINVAL : 0;
}

/* Objects */

int rxe_fault_create_qp(struct rxe_qp *qp, const struct ib_qp_init_attr *init)
{
	if (init->qp_type != IB_QPT_RC || qp->is_user || !concerns(qp->ibqp.device))
		return 0;
	if (occurs(SLOW_QP))
		msleep(late_ms);
	return occurs(CREATE_QP) ? -ENOMEM : 0;
}

u64 rxe_fault_region_page(struct rxe_mr *mr, u64 address)
{
	return concerns(mr->ibmr.device) && occurs(UNMAPPED_REGION) ? address | NOWHERE : address;
}

void rxe_fault_dereg_mr(struct rxe_mr *mr)
{
	if (mr->ibmr.type == IB_MR_TYPE_MEM_REG && concerns(mr->ibmr.device) && occurs(SLOW_MR))
		msleep(late_ms);
}

void rxe_fault_flush_send(struct rxe_qp *qp, struct rxe_send_wqe *wqe, struct ib_wc *wc)
{
	if (!qp->is_user && wqe->state == wqe_state_error && wqe->status == IB_WC_LOC_PROT_ERR)
		wc->status = wqe->status;
}

void rxe_fault_flush_recv(struct rxe_qp *qp, struct rxe_recv_wqe *wqe)
{
	u8 bytes[HEADER_BYTES];

	if (!may_fail(qp) || !occurs(SCRIBBLE))
		return;
	memset(bytes, 0xee, sizeof(bytes));
	while (wqe->dma.resid) {
		int size = min_t(int, wqe->dma.resid, sizeof(bytes));

		if (WARN_ON_ONCE(copy_data(qp->pd, IB_ACCESS_LOCAL_WRITE, &wqe->dma, bytes, size, RXE_TO_MR_OBJ)))
			return;
	}
}

/* Messages of the connection manager */

struct delayed_packet {
	struct timer_list timer;
	struct rxe_pkt_info pkt;
	struct sk_buff *skb;
};

static void send_delayed(struct timer_list *timer)
{
	struct delayed_packet *this = container_of(timer, struct delayed_packet, timer);
	struct rxe_qp *qp = this->pkt.qp;

	if (rxe_xmit_packet(qp, &this->pkt, this->skb))
		pr_debug("a delayed packet is lost\n");
	rxe_put(qp);
	kfree(this);
}

static int delay(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	struct delayed_packet *this = kzalloc(sizeof(*this), GFP_ATOMIC);

	if (WARN_ON_ONCE(!this || !rxe_get(qp))) {
		kfree(this);
		return rxe_xmit_packet(qp, pkt, skb);
	}
	this->pkt = *pkt;
	this->skb = skb;
	timer_setup(&this->timer, send_delayed, 0);
	mod_timer(&this->timer, jiffies + msecs_to_jiffies(late_ms));
	return 0;
}

static int send_twice(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	struct sk_buff *copy = skb_copy(skb, GFP_ATOMIC);
	struct rxe_pkt_info second = *pkt;

	if (copy) {
		second.hdr = copy->head + (pkt->hdr - skb->head);
		if (rxe_xmit_packet(qp, &second, copy))
			pr_debug("the first of two packets is lost\n");
	}
	return rxe_xmit_packet(qp, pkt, skb);
}

static bool is_chosen_mad(struct rxe_qp *qp, struct rxe_pkt_info *pkt)
{
	const struct ib_mad_hdr *mad = payload_addr(pkt);

	return qp_type(qp) == IB_QPT_GSI && payload_size(pkt) >= sizeof(*mad) &&
	       mad->mgmt_class == IB_MGMT_CLASS_CM && be16_to_cpu(mad->attr_id) == cm_attribute &&
	       concerns(qp->ibqp.device);
}

int rxe_fault_send(struct rxe_qp *qp, struct rxe_pkt_info *pkt, struct sk_buff *skb)
{
	bool chosen = READ_ONCE(cm_attribute) && is_chosen_mad(qp, pkt);

	if (is_dead(qp) || (chosen && occurs(CM_DROP))) {
		kfree_skb(skb);
		return 0;
	}
	if (chosen && occurs(CM_DELAY))
		return delay(qp, pkt, skb);
	if (chosen && occurs(CM_DOUBLE))
		return send_twice(qp, pkt, skb);
	return rxe_xmit_packet(qp, pkt, skb);
}

/* Events of the device */

/* Reports a fatal error of the device of a network interface, whose name was written. */
static ssize_t report_fatal(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	struct ib_event event = { .event = IB_EVENT_DEVICE_FATAL };
	char name[IFNAMSIZ] = {};
	struct net_device *netdev;

	if (size >= sizeof(name))
		return -EINVAL;
	if (copy_from_user(name, text, size))
		return -EFAULT;
	netdev = dev_get_by_name(&init_net, strim(name));
	if (!netdev)
		return -ENODEV;
	event.device = ib_device_get_by_netdev(netdev, RDMA_DRIVER_RXE);
	dev_put(netdev);
	if (!event.device)
		return -ENODEV;
	event.element.port_num = 1;
	ib_dispatch_event(&event);
	ib_device_put(event.device);
	return size;
}

static const struct file_operations fatal_file = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = report_fatal,
};

void rxe_faults_init(void)
{
	int i;

	folder = debugfs_create_dir("rxe_faults", NULL);
	debugfs_create_u32("device", 0600, folder, &device);
	debugfs_create_u32("late_ms", 0600, folder, &late_ms);
	debugfs_create_u32("turned", 0600, folder, &turned);
	debugfs_create_atomic_t("overtook", 0400, folder, &overtook);
	debugfs_create_u32("dead", 0600, folder, &dead);
	debugfs_create_u32("cm_attribute", 0600, folder, &cm_attribute);
	debugfs_create_file("fatal", 0200, folder, NULL, &fatal_file);
	for (i = 0; i < FAULTS; i++) {
		struct dentry *dir = debugfs_create_dir(faults[i].name, folder);

		debugfs_create_atomic_t("times", 0600, dir, &faults[i].times);
		debugfs_create_atomic_t("skip", 0600, dir, &faults[i].skip);
		debugfs_create_atomic_t("seen", 0600, dir, &faults[i].seen);
	}
	rxe_strict_init(folder);
}

void rxe_faults_exit(void)
{
	rxe_strict_exit();
	debugfs_remove(folder);
	timer_delete_sync(&held_timer);
}
