/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that fire the tracepoints of rds_trace.h. trace.rs calls them only while the
 * tracepoint is enabled.
 *
 * Their arguments are plain values, of which any is allowed. So Kbuild declares them safe for Rust.
 */
#ifndef RDS_RUST_HELPERS_TRACE_H
#define RDS_RUST_HELPERS_TRACE_H

#include <linux/types.h>

struct rds_trace_addr {
	u8 octets[16];
};

/* Identity of a connection. */
struct rds_trace_conn {
	u8 laddr[16];
	u8 faddr[16];
	u8 tos;
};

/* A name, padded with zeros. There is no terminating NUL if it has the largest size. */
struct rds_trace_name {
	u8 text[32];
};

/* Numbers of a removed connection, beside those of the states and events in proto/connect.rs. */
enum rds_trace_removed {
	RDS_TRACE_UNUSED = 254,
	RDS_TRACE_FORGOTTEN = 255,
};

/* A message, beside its connection. */
struct rds_trace_message {
	u64 sequence;
	u32 bytes;
	u16 sport;
	u16 dport;
	u8 transport;
};

/* A work request of an operation. The status is that of its completion. */
struct rds_trace_operation {
	u64 number;
	u32 bytes;
	u32 status;
	u8 kind;
	bool last;
};

/* Memory that is registered on a device, for peers or for an operation of this node. */
struct rds_trace_mr {
	u32 rkey;
	u32 bytes;
	bool offered;
};

void rds_rust_trace_state(struct rds_trace_conn conn, u8 event, u8 from, u8 to);
void rds_rust_trace_dropped(struct rds_trace_conn conn, u32 reason, u64 count);
void rds_rust_trace_failed(struct rds_trace_conn conn, struct rds_trace_name what, int code);
void rds_rust_trace_port(struct rds_trace_addr addr, u16 port, bool full);

void rds_rust_trace_queued(struct rds_trace_conn conn, struct rds_trace_message message);
void rds_rust_trace_posted(struct rds_trace_conn conn, struct rds_trace_message message);
void rds_rust_trace_acked(struct rds_trace_conn conn, struct rds_trace_message message);
void rds_rust_trace_received(struct rds_trace_conn conn, struct rds_trace_message message);
void rds_rust_trace_delivered(struct rds_trace_conn conn, struct rds_trace_message message);
void rds_rust_trace_read(struct rds_trace_conn conn, struct rds_trace_message message);

void rds_rust_trace_send_completed(struct rds_trace_conn conn, u8 transport, u32 count, u32 left);
void rds_rust_trace_recv_completed(struct rds_trace_conn conn, u8 transport, u32 count, u32 left);
void rds_rust_trace_recv_posted(struct rds_trace_conn conn, u32 count, u32 posted);
void rds_rust_trace_recv_ring_empty(struct rds_trace_conn conn, u32 posted);

void rds_rust_trace_op_posted(struct rds_trace_conn conn, struct rds_trace_operation operation);
void rds_rust_trace_op_completed(struct rds_trace_conn conn, struct rds_trace_operation operation);

void rds_rust_trace_mr_registered(struct rds_trace_addr addr, struct rds_trace_mr mr);
void rds_rust_trace_mr_released(struct rds_trace_addr addr, struct rds_trace_mr mr);

#endif
