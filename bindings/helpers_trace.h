/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C functions that fire the tracepoints of rds_trace.h. They cost a call even when tracing is off,
 * so they are not used for each message.
 */
#ifndef RDS_RUST_HELPERS_TRACE_H
#define RDS_RUST_HELPERS_TRACE_H

#include <linux/types.h>

/* Identity of a connection. */
struct rds_trace_conn {
	u8 laddr[16];
	u8 faddr[16];
	u8 tos;
};

/* A name without a terminating NUL. */
struct rds_trace_name {
	const char *at;
	size_t len;
};

void rds_rust_trace_state(const struct rds_trace_conn *conn, const struct rds_trace_name *event,
			  const struct rds_trace_name *from, const struct rds_trace_name *to);
void rds_rust_trace_dropped(const struct rds_trace_conn *conn, const struct rds_trace_name *reason,
			    u64 count);
void rds_rust_trace_failed(const struct rds_trace_conn *conn, const struct rds_trace_name *what,
			   int code);
void rds_rust_trace_port(const u8 addr[16], u16 port, bool full);

#endif
