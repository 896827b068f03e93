/* SPDX-License-Identifier: GPL-2.0 */
/* A fake RDMA device for the KUnit suites; see helpers_fake.c. */
#ifndef RDS_RUST_HELPERS_FAKE_H
#define RDS_RUST_HELPERS_FAKE_H

#include <rdma/ib_verbs.h>

/* Results of posted work requests. */
struct rds_fake_script {
	/*
	 * send_error: if not 0, the send after sends_before_error others is refused with this
	 * errno.
	 */
	u32 sends_before_error;
	int send_error;
	/* The same for receives. */
	u32 receives_before_error;
	int receive_error;
	/* Opcode of receive completions, 0 for IB_WC_RECV, and their flags. */
	u32 receive_opcode;
	u32 receive_flags;
	/*
	 * Registrations and invalidations complete by themselves, unless holds_local. local_status:
	 * if not 0, the one after local_before_status others completes with it.
	 */
	u32 local_before_status;
	int local_status;
	bool holds_local;
	/* A queue pair in error keeps its work requests. */
	bool holds_flush;
	/* The device refuses atomic operations, and regions for them. */
	bool no_atomics;
	/* If not 0, the device refuses to deregister regions, with this errno. */
	int dereg_error;
};

/* Progress of a queue pair. */
struct rds_rust_fake_queues {
	u32 sends_posted;
	u32 sends_ended;
	u32 receives_posted;
	u32 receives_ended;
	bool in_error;
	/* All completions were polled, and the completion queue is armed. */
	bool settled;
};

/* A send that has not completed. */
struct rds_rust_fake_send {
	u32 opcode;
	int flags;
	/* First bytes of a frame. */
	u8 bytes[64];
};

struct ib_device *rds_rust_fake_alloc(bool soft_iwarp, bool direct);
void rds_rust_fake_set_own_drain(struct ib_device *device);
void rds_rust_fake_add_port(struct ib_device *device);
u32 rds_rust_fake_made_with_io(struct ib_device *device);
u32 rds_rust_fake_refused(struct ib_device *device);
u32 rds_rust_fake_drained(struct ib_device *device);
void rds_rust_fake_free(struct ib_device *device);
void rds_rust_fake_set_script(struct ib_device *device, const struct rds_fake_script *script);
u32 rds_rust_fake_changes(struct ib_device *device);
bool rds_rust_fake_await_change(struct ib_device *device, u32 since);
u32 rds_rust_fake_regions(struct ib_device *device, u32 *made);

/* Queue pairs are numbered from 1. */
u32 rds_rust_fake_last_qp(struct ib_device *device);
struct ib_qp *rds_rust_fake_create_qp(struct ib_pd *pd, struct ib_qp_init_attr *attr);
void rds_rust_fake_destroy_qp(struct ib_qp *qp);
bool rds_rust_fake_queues(struct ib_device *device, u32 number,
			  struct rds_rust_fake_queues *queues);
bool rds_rust_fake_send(struct ib_device *device, u32 number, u32 index,
			struct rds_rust_fake_send *send);
bool rds_rust_fake_end_send(struct ib_device *device, u32 number, int status);
bool rds_rust_fake_receive(struct ib_device *device, u32 number, const u8 *bytes, u32 size,
			   u32 byte_len, int status);
bool rds_rust_fake_report(struct ib_device *device, u32 number, u64 id, int status);
bool rds_rust_fake_report_stray(struct ib_device *device, u32 number);
u32 rds_rust_fake_strays(struct ib_device *device);
bool rds_rust_fake_event(struct ib_device *device, u32 number, int event);

int rds_rust_fake_service_level(struct ib_device *device, u32 port, bool resolved);

unsigned long rds_rust_fake_program_memory(unsigned long size);
bool rds_rust_fake_program_has(unsigned long address, unsigned long size, u8 value);
int rds_rust_fake_access(struct ib_device *device, u64 address, void *bytes, size_t size,
			 bool writes);
size_t rds_rust_fake_bounce_bytes(struct ib_device *device);

#endif
