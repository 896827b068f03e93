/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that fire the tracepoints of rds_trace.h. They cost a call even when tracing is off,
 * so they are not used for each message.
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

void rds_rust_trace_state(struct rds_trace_conn conn, struct rds_trace_name event,
			  struct rds_trace_name from, struct rds_trace_name to);
void rds_rust_trace_dropped(struct rds_trace_conn conn, struct rds_trace_name reason, u64 count);
void rds_rust_trace_failed(struct rds_trace_conn conn, struct rds_trace_name what, int code);
void rds_rust_trace_port(struct rds_trace_addr addr, u16 port, bool full);

#endif
