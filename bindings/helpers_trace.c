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

void rds_rust_trace_send_completed(struct rds_trace_conn conn, u8 transport, u32 count, u32 left)
{
	trace_rds_send_completed(&conn, transport, count, left);
}

void rds_rust_trace_recv_completed(struct rds_trace_conn conn, u8 transport, u32 count, u32 left)
{
	trace_rds_recv_completed(&conn, transport, count, left);
}

void rds_rust_trace_recv_posted(struct rds_trace_conn conn, u32 count, u32 posted)
{
	trace_rds_recv_posted(&conn, count, posted);
}

void rds_rust_trace_recv_ring_empty(struct rds_trace_conn conn, u32 posted)
{
	trace_rds_recv_ring_empty(&conn, 0, posted);
}

void rds_rust_trace_op_posted(struct rds_trace_conn conn, struct rds_trace_operation operation)
{
	trace_rds_op_posted(&conn, &operation);
}

void rds_rust_trace_op_completed(struct rds_trace_conn conn, struct rds_trace_operation operation)
{
	trace_rds_op_completed(&conn, &operation);
}

void rds_rust_trace_mr_registered(struct rds_trace_addr addr, struct rds_trace_mr mr)
{
	trace_rds_mr_registered(&addr, &mr);
}

void rds_rust_trace_mr_released(struct rds_trace_addr addr, struct rds_trace_mr mr)
{
	trace_rds_mr_released(&addr, &mr);
}
