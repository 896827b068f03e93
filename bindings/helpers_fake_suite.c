// SPDX-License-Identifier: GPL-2.0
/* Commands of the KUnit suites for the device in helpers_fake.c. */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <rdma/rdma_cm.h>

#include "helpers_fake_device.h"
#include "helpers_rdma.h"

#define RDS_FAKE_PATIENCE (30 * HZ)

/**
 * rds_rust_fake_set_script() - replace the script of the device
 * @device: the device
 * @script: new script
 *
 * Completes the work requests that are no longer held.
 */
void rds_rust_fake_set_script(struct ib_device *device, const struct rds_fake_script *script)
{
	struct rds_fake *fake = to_fake(device);
	struct rds_fake_qp *qp;

	guard(spinlock_irq)(&fake->lock);
	fake->script = *script;
	list_for_each_entry(qp, &fake->qps, list) {
		rds_rust_fake_end_local(fake, qp);
		rds_rust_fake_flush(fake, qp);
	}
	rds_rust_fake_note_change(fake);
}

/**
 * rds_rust_fake_changes() - count the changes so far
 * @device: the device
 *
 * Return: the number of changes, for rds_rust_fake_await_change().
 */
u32 rds_rust_fake_changes(struct ib_device *device)
{
	return READ_ONCE(to_fake(device)->changes);
}

/**
 * rds_rust_fake_await_change() - wait for a change
 * @device: the device
 * @since: number of changes that the caller has seen
 *
 * Sleeps.
 *
 * Return: false if no change happens within RDS_FAKE_PATIENCE.
 */
bool rds_rust_fake_await_change(struct ib_device *device, u32 since)
{
	struct rds_fake *fake = to_fake(device);

	return wait_event_timeout(fake->changed, READ_ONCE(fake->changes) != since,
				  RDS_FAKE_PATIENCE);
}

/**
 * rds_rust_fake_regions() - count the regions of the device
 * @device: the device
 * @made: set to the number of regions that were ever created
 *
 * Return: the number of regions.
 */
u32 rds_rust_fake_regions(struct ib_device *device, u32 *made)
{
	struct rds_fake *fake = to_fake(device);

	guard(spinlock_irq)(&fake->lock);
	*made = fake->regions_made;
	return fake->regions;
}

u32 rds_rust_fake_last_qp(struct ib_device *device)
{
	return READ_ONCE(to_fake(device)->last_qp);
}

/**
 * rds_rust_fake_create_qp() - create a queue pair without the connection manager
 * @pd: protection domain
 * @attr: attributes
 *
 * Return: the queue pair, which is ready to send, or an error pointer.
 */
struct ib_qp *rds_rust_fake_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr)
{
	return ib_create_qp(pd, attr);
}

void rds_rust_fake_destroy_qp(struct ib_qp *qp)
{
	ib_destroy_qp(qp);
}

bool rds_rust_fake_queues(struct ib_device *device, u32 number, struct rds_rust_fake_queues *queues)
{
	struct rds_fake *fake = to_fake(device);
	const struct rds_fake_qp *qp;
	const struct rds_fake_cq *cq;

	guard(spinlock_irq)(&fake->lock);
	qp = rds_rust_fake_find(fake, number);
	if (!qp)
		return false;
	cq = to_cq(qp->qp.send_cq);
	*queues = (struct rds_rust_fake_queues) {
		.sends_posted = qp->sends.posted,
		.sends_ended = qp->sends.ended,
		.receives_posted = qp->receives.posted,
		.receives_ended = qp->receives.ended,
		.in_error = qp->in_error,
		.settled = cq->armed && cq->polled == cq->reported,
	};
	return true;
}

/**
 * rds_rust_fake_send() - read a send that was posted
 * @device: the device
 * @number: number of the queue pair
 * @index: number of sends that were posted before this one
 * @send: set to the send
 *
 * Return: false if the send has completed, or was not posted.
 */
bool rds_rust_fake_send(struct ib_device *device, u32 number, u32 index,
			struct rds_rust_fake_send *send)
{
	struct rds_fake *fake = to_fake(device);
	const struct rds_fake_qp *qp;
	const struct rds_fake_wr *wr;

	guard(spinlock_irq)(&fake->lock);
	qp = rds_rust_fake_find(fake, number);
	if (!qp || index < qp->sends.ended || index >= qp->sends.posted)
		return false;
	wr = &qp->sends.wrs[index % qp->sends.size];
	*send = (struct rds_rust_fake_send) { .opcode = wr->opcode, .flags = wr->flags };
	if (wr->opcode != IB_WR_SEND)
		return true;
	return !rds_rust_fake_dma_access(device->dma_device, wr->address, send->bytes,
					 min_t(u32, wr->length, sizeof(send->bytes)), false);
}

/**
 * rds_rust_fake_end_send() - complete the oldest send
 * @device: the device
 * @number: number of the queue pair
 * @status: status of the completion, or RDS_FAKE_LOST for none
 *
 * An error puts the queue pair into the error state.
 *
 * Return: false if there is no send.
 */
bool rds_rust_fake_end_send(struct ib_device *device, u32 number, int status)
{
	struct rds_fake *fake = to_fake(device);
	struct rds_fake_qp *qp;

	guard(spinlock_irq)(&fake->lock);
	qp = rds_rust_fake_find(fake, number);
	if (!qp || !rds_rust_fake_finish_send(qp, status))
		return false;
	if (status > IB_WC_SUCCESS)
		rds_rust_fake_fail(fake, qp);
	return true;
}

/**
 * rds_rust_fake_receive() - complete the oldest receive
 * @device: the device
 * @number: number of the queue pair
 * @bytes: data of the frame
 * @size: size of the data
 * @byte_len: size that the device reports
 * @status: status of the completion
 *
 * An error puts the queue pair into the error state.
 *
 * Return: false if there is no receive, or the data does not fit.
 */
bool rds_rust_fake_receive(struct ib_device *device, u32 number, const u8 *bytes, u32 size,
			   u32 byte_len, int status)
{
	struct rds_fake *fake = to_fake(device);
	const struct rds_fake_wr *wr;
	struct rds_fake_qp *qp;

	guard(spinlock_irq)(&fake->lock);
	qp = rds_rust_fake_find(fake, number);
	wr = qp ? rds_rust_fake_oldest(&qp->receives) : NULL;
	if (!wr || size > wr->length)
		return false;
	if (rds_rust_fake_dma_access(device->dma_device, wr->address, (void *)bytes, size, true))
		return false;
	rds_rust_fake_finish_receive(qp, status, byte_len);
	if (status != IB_WC_SUCCESS)
		rds_rust_fake_fail(fake, qp);
	return true;
}

/**
 * rds_rust_fake_report() - report a completion without a work request
 * @device: the device
 * @number: number of the queue pair
 * @id: the wr_id of the completion
 * @status: its status
 *
 * Return: false if there is no such queue pair.
 */
bool rds_rust_fake_report(struct ib_device *device, u32 number, u64 id, int status)
{
	struct rds_fake *fake = to_fake(device);
	const struct ib_wc wc = { .wr_id = id, .status = status, .opcode = IB_WC_RECV };
	const struct rds_fake_qp *qp;

	guard(spinlock_irq)(&fake->lock);
	qp = rds_rust_fake_find(fake, number);
	if (!qp)
		return false;
	rds_rust_fake_complete(qp->qp.send_cq, &wc);
	return true;
}

static void rds_fake_note_stray(struct ib_cq *cq, struct ib_wc *wc)
{
	WRITE_ONCE(to_fake(cq->device)->strays, to_fake(cq->device)->strays + 1);
}

/**
 * rds_rust_fake_report_stray() - report a completion whose entry was never posted
 * @device: the device
 * @number: number of the queue pair
 *
 * Return: false if there is no such queue pair.
 */
bool rds_rust_fake_report_stray(struct ib_device *device, u32 number)
{
	struct rds_fake *fake = to_fake(device);

	fake->stray.done = rds_fake_note_stray;
	return rds_rust_fake_report(device, number, (uintptr_t)&fake->stray, IB_WC_WR_FLUSH_ERR);
}

u32 rds_rust_fake_strays(struct ib_device *device)
{
	return READ_ONCE(to_fake(device)->strays);
}

u32 rds_rust_fake_made_with_io(struct ib_device *device)
{
	return READ_ONCE(to_fake(device)->made_with_io);
}

u32 rds_rust_fake_refused(struct ib_device *device)
{
	return READ_ONCE(to_fake(device)->refused);
}

u32 rds_rust_fake_drained(struct ib_device *device)
{
	return READ_ONCE(to_fake(device)->drained);
}

/**
 * rds_rust_fake_event() - report an event of a queue pair or its completion queue
 * @device: the device
 * @number: number of the queue pair
 * @event: IB_EVENT_CQ_ERR for the completion queue, otherwise an event of the queue pair
 *
 * Return: false if there is no such queue pair, or no handler.
 */
bool rds_rust_fake_event(struct ib_device *device, u32 number, int event)
{
	struct rds_fake *fake = to_fake(device);
	struct ib_event what = { .device = device, .event = event };
	struct rds_fake_qp *qp;

	guard(spinlock_irq)(&fake->lock);
	qp = rds_rust_fake_find(fake, number);
	if (!qp)
		return false;
	if (event == IB_EVENT_CQ_ERR) {
		struct ib_cq *cq = qp->qp.send_cq;

		if (!cq->event_handler)
			return false;
		what.element.cq = cq;
		cq->event_handler(&what, cq->cq_context);
		return true;
	}
	what.element.qp = &qp->qp;
	qp->qp.event_handler(&what, qp->qp.qp_context);
	return true;
}

/**
 * rds_rust_fake_service_level() - request service level 5 for a route that has level 2
 * @device: the device
 * @port: capabilities of the port
 * @resolved: the CM id has a device and a route
 *
 * Return: the service level afterwards, plus 100 if the path is up, plus 1000 if a subnet
 * administrator provides the route. Or a negative errno.
 */
int rds_rust_fake_service_level(struct ib_device *device, u32 port, bool resolved)
{
	struct rdma_cm_id *id __free(kfree) = kzalloc(sizeof(*id), GFP_KERNEL);
	struct sa_path_rec path = { .sl = 2 };

	if (!id)
		return -ENOMEM;
	to_fake(device)->ports[1].immutable.core_cap_flags = port;
	id->port_num = 1;
	if (resolved) {
		id->device = device;
		id->route.path_rec = &path;
	}
	rds_rust_rdma_set_service_level(id, 5);
	return path.sl + (rds_rust_rdma_path_is_up(id) ? 100 : 0) +
	       (rds_rust_rdma_has_sa(id) ? 1000 : 0);
}

/**
 * rds_rust_fake_program_memory() - map memory as a program
 * @size: size in bytes
 *
 * The task of the suite gets an address space for this. Each page is filled with its number, from 0
 * on. Neighbouring pages are not contiguous: pages with odd numbers are allocated after all others.
 * Sleeps.
 *
 * Return: the address, or 0.
 */
unsigned long rds_rust_fake_program_memory(unsigned long size)
{
	void *bytes __free(kfree) = kmalloc(PAGE_SIZE, GFP_KERNEL);
	unsigned long address, first, at;

	if (!bytes || kunit_attach_mm())
		return 0;
	address = vm_mmap(NULL, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	if (IS_ERR_VALUE(address))
		return 0;
	for (first = 0; first < 2 * PAGE_SIZE; first += PAGE_SIZE) {
		for (at = first; at < size; at += 2 * PAGE_SIZE) {
			memset(bytes, (int)(at / PAGE_SIZE), PAGE_SIZE);
			if (copy_to_user((void __user *)(address + at), bytes,
					 min(size - at, PAGE_SIZE)))
				return 0;
		}
	}
	return address;
}

/**
 * rds_rust_fake_program_has() - check the contents of program memory
 * @address: address from rds_rust_fake_program_memory()
 * @size: size in bytes
 * @value: expected value
 *
 * Sleeps.
 *
 * Return: true if all bytes have the value.
 */
bool rds_rust_fake_program_has(unsigned long address, unsigned long size, u8 value)
{
	u8 *bytes __free(kvfree) = kvmalloc(size, GFP_KERNEL);

	return bytes && !copy_from_user(bytes, (void __user *)address, size) &&
	       !memchr_inv(bytes, value, size);
}

int rds_rust_fake_access(struct ib_device *device, u64 address, void *bytes, size_t size,
			 bool writes)
{
	return rds_rust_fake_dma_access(device->dma_device, address, bytes, size, writes);
}

size_t rds_rust_fake_bounce_bytes(struct ib_device *device)
{
	return rds_rust_fake_dma_bounce_bytes(device->dma_device);
}
