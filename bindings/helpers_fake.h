/* SPDX-License-Identifier: GPL-2.0 */
/* An RDMA device that is made up, for the KUnit suites: see helpers_fake.c. */
#ifndef RDS_RUST_HELPERS_FAKE_H
#define RDS_RUST_HELPERS_FAKE_H

#include <rdma/ib_verbs.h>

/* The fate of posted work requests. */
struct rds_fake_script {
	/* After so many more sends one is refused, with this error; no error: none is. */
	u32 sends_before_error;
	int send_error;
	/* Likewise with receives. */
	u32 receives_before_error;
	int receive_error;
	/* What receives end as: IB_WC_RECV if there is none, and flags. */
	u32 receive_opcode;
	u32 receive_flags;
	/* Registrations and invalidations end by themselves, but for those that are held: after so many more, one ends so. */
	u32 local_before_status;
	int local_status;
	bool holds_local;
	/* A queue pair in error keeps what it has. */
	bool holds_flush;
	/* The device refuses atomic operations, and regions for them. */
	bool no_atomics;
	/* Regions are not let go, with this error. */
	int dereg_error;
};

/* Progress of a queue pair. */
struct rds_rust_fake_queues {
	u32 sends_posted;
	u32 sends_ended;
	u32 receives_posted;
	u32 receives_ended;
	bool in_error;
	/* All that has ended was polled, and whoever polls waits for more. */
	bool settled;
};

/* A send that has not ended. */
struct rds_rust_fake_send {
	u32 opcode;
	int flags;
	/* First bytes of a frame. */
	u8 bytes[64];
};

struct ib_device *rds_rust_fake_alloc(bool soft_iwarp, bool direct);
void rds_rust_fake_set_own_drain(struct ib_device *device);
u32 rds_rust_fake_made_with_io(struct ib_device *device);
u32 rds_rust_fake_refused(struct ib_device *device);
u32 rds_rust_fake_drained(struct ib_device *device);
void rds_rust_fake_free(struct ib_device *device);
void rds_rust_fake_set_script(struct ib_device *device, const struct rds_fake_script *script);
u32 rds_rust_fake_changes(struct ib_device *device);
bool rds_rust_fake_await_change(struct ib_device *device, u32 since);
u32 rds_rust_fake_regions(struct ib_device *device, u32 *made);

/* Queue pairs have numbers, from 1 on. */
u32 rds_rust_fake_last_qp(struct ib_device *device);
struct ib_qp *rds_rust_fake_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr);
void rds_rust_fake_destroy_qp(struct ib_qp *qp);
bool rds_rust_fake_queues(struct ib_device *device, u32 number, struct rds_rust_fake_queues *queues);
bool rds_rust_fake_send(struct ib_device *device, u32 number, u32 index, struct rds_rust_fake_send *send);
bool rds_rust_fake_end_send(struct ib_device *device, u32 number, int status);
bool rds_rust_fake_receive(struct ib_device *device, u32 number, const u8 *bytes, u32 size, u32 told,
			   int status);
bool rds_rust_fake_report(struct ib_device *device, u32 number, u64 id, int status);
bool rds_rust_fake_report_stray(struct ib_device *device, u32 number);
u32 rds_rust_fake_strays(struct ib_device *device);
bool rds_rust_fake_event(struct ib_device *device, u32 number, int event);

int rds_rust_fake_service_level(struct ib_device *device, u32 port, bool resolved);

unsigned long rds_rust_fake_program_memory(unsigned long size);
bool rds_rust_fake_program_has(unsigned long address, unsigned long size, u8 value);
int rds_rust_fake_access(struct ib_device *device, u64 address, void *bytes, size_t size, bool writes);
bool rds_rust_fake_bounces(struct ib_device *device);

#endif
