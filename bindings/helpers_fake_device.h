/* SPDX-License-Identifier: GPL-2.0 */
/* Data of the device in helpers_fake.c, for the functions that suites use. */
#ifndef RDS_RUST_HELPERS_FAKE_DEVICE_H
#define RDS_RUST_HELPERS_FAKE_DEVICE_H

#include <linux/cleanup.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>

#include "helpers_fake.h"
#include "helpers_fake_dma.h"

/* Pseudo-status: the work request ends without a completion. */
#define RDS_FAKE_LOST -1

struct rds_fake {
	struct ib_device device;
	/* Device for which memory is mapped. */
	struct rds_fake_dma dma;
	/* Ports from number 1 on. The module reads the first one before it knows their count. */
	struct ib_port_data ports[2];
	/* Protects all fields below, and the queues. */
	spinlock_t lock;
	struct rds_fake_script script;
	struct list_head qps;
	u32 last_qp;
	u32 regions;
	u32 regions_made;
	u32 changes;
	/*
	 * Number of queue pairs that a worker created while memory allocations could wait for I/O.
	 */
	u32 made_with_io;
	/* Number of atomic work requests and registrations that were refused. */
	u32 refused;
	/* Number of calls of the driver's drain functions. */
	u32 drained;
	/* A completion entry that was never posted, and the number of its completions. */
	struct ib_cqe stray;
	u32 strays;
	wait_queue_head_t changed;
};

struct rds_fake_cq {
	struct ib_cq cq;
	struct ib_wc *wcs;
	u32 size;
	/* Number of completions that were reported, and that were polled. */
	u32 reported;
	u32 polled;
	bool armed;
};

/* A work request. */
struct rds_fake_wr {
	u64 id;
	u64 address;
	u32 length;
	enum ib_wr_opcode opcode;
	int flags;
};

/* Work requests, the oldest first. */
struct rds_fake_ring {
	struct rds_fake_wr *wrs;
	u32 size;
	u32 posted;
	u32 ended;
};

struct rds_fake_qp {
	struct ib_qp qp;
	struct list_head list;
	struct rds_fake_ring sends;
	struct rds_fake_ring receives;
	bool in_error;
};

static inline struct rds_fake *to_fake(struct ib_device *device)
{
	return container_of(device, struct rds_fake, device);
}

static inline struct rds_fake_cq *to_cq(struct ib_cq *cq)
{
	return container_of(cq, struct rds_fake_cq, cq);
}

static inline struct rds_fake_qp *to_qp(struct ib_qp *qp)
{
	return container_of(qp, struct rds_fake_qp, qp);
}

/* Functions that are called with the lock held. */
void rds_rust_fake_note_change(struct rds_fake *fake);
struct rds_fake_qp *rds_rust_fake_find(struct rds_fake *fake, u32 number);
void rds_rust_fake_complete(struct ib_cq *cq, const struct ib_wc *wc);
struct rds_fake_wr *rds_rust_fake_oldest(struct rds_fake_ring *ring);
bool rds_rust_fake_finish_send(struct rds_fake_qp *qp, int status);
bool rds_rust_fake_finish_receive(struct rds_fake_qp *qp, enum ib_wc_status status, u32 length);
void rds_rust_fake_flush(struct rds_fake *fake, struct rds_fake_qp *qp);
void rds_rust_fake_fail(struct rds_fake *fake, struct rds_fake_qp *qp);
void rds_rust_fake_end_local(struct rds_fake *fake, struct rds_fake_qp *qp);

#endif
