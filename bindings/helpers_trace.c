// SPDX-License-Identifier: GPL-2.0
#include "helpers_trace.h"

#define CREATE_TRACE_POINTS
#include "rds_trace.h"

void rds_rust_trace_state(struct rds_trace_conn conn, u8 event, u8 from, u8 to)
{
	trace_rds_conn_state(&conn, event, from, to);
}

void rds_rust_trace_dropped(struct rds_trace_conn conn, u32 reason, u64 count)
{
	trace_rds_drop(&conn, reason, count);
}

void rds_rust_trace_failed(struct rds_trace_conn conn, struct rds_trace_name what, int code)
{
	trace_rds_error(&conn, &what, code);
}

void rds_rust_trace_port(struct rds_trace_addr addr, u16 port, bool full)
{
	trace_rds_congestion(&addr, port, full);
}

void rds_rust_trace_queued(struct rds_trace_conn conn, struct rds_trace_message message)
{
	trace_rds_msg_queued(&conn, &message);
}

void rds_rust_trace_posted(struct rds_trace_conn conn, struct rds_trace_message message)
{
	trace_rds_msg_posted(&conn, &message);
}

void rds_rust_trace_acked(struct rds_trace_conn conn, struct rds_trace_message message)
{
	trace_rds_msg_acked(&conn, &message);
}

void rds_rust_trace_received(struct rds_trace_conn conn, struct rds_trace_message message)
{
	trace_rds_msg_received(&conn, &message);
}

void rds_rust_trace_delivered(struct rds_trace_conn conn, struct rds_trace_message message)
{
	trace_rds_msg_delivered(&conn, &message);
}

void rds_rust_trace_read(struct rds_trace_conn conn, struct rds_trace_message message)
{
	trace_rds_msg_read(&conn, &message);
}
