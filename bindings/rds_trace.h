/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints rds:*. Addresses are shown as IPv6 addresses, IPv4 ones as IPv4-mapped.
 *
 * States, events and reasons are recorded as numbers. trace_names.awk makes the tables of their
 * names. What an error is about is recorded as text: several layers name it, and a connection has
 * one at its end.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rds

#if !defined(RDS_RUST_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define RDS_RUST_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>
#include <trace/misc/rdma.h>
#include "helpers_trace.h"
#include "trace_names.h"

/* The connection of an event. */
#define RDS_TRACE_CONN_ENTRY	__array(u8, laddr, 16) __array(u8, faddr, 16) __field(u8, tos)
#define RDS_TRACE_CONN_ASSIGN	memcpy(__entry->laddr, conn->laddr, 16); \
				memcpy(__entry->faddr, conn->faddr, 16); \
				__entry->tos = conn->tos
#define RDS_TRACE_CONN_FORMAT	"<%pI6c,%pI6c,%u> "
#define RDS_TRACE_CONN_ARGS	__entry->laddr, __entry->faddr, __entry->tos

TRACE_EVENT(rds_conn_state,
	TP_PROTO(const struct rds_trace_conn *conn, u8 event, u8 from, u8 to),
	TP_ARGS(conn, event, from, to),
	TP_STRUCT__entry(
		RDS_TRACE_CONN_ENTRY
		__field(u8, event)
		__field(u8, from)
		__field(u8, to)
	),
	TP_fast_assign(
		RDS_TRACE_CONN_ASSIGN;
		__entry->event = event;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk(RDS_TRACE_CONN_FORMAT "%s: %s -> %s", RDS_TRACE_CONN_ARGS,
		  __print_symbolic(__entry->event, RDS_TRACE_EVENTS, { 254, "unused" }),
		  __print_symbolic(__entry->from, RDS_TRACE_STATES),
		  __print_symbolic(__entry->to, RDS_TRACE_STATES, { 255, "forgotten" }))
);

TRACE_EVENT(rds_drop,
	TP_PROTO(const struct rds_trace_conn *conn, u32 reason, u64 count),
	TP_ARGS(conn, reason, count),
	TP_STRUCT__entry(
		RDS_TRACE_CONN_ENTRY
		__field(u32, reason)
		__field(u64, count)
	),
	TP_fast_assign(
		RDS_TRACE_CONN_ASSIGN;
		__entry->reason = reason;
		__entry->count = count;
	),
	TP_printk(RDS_TRACE_CONN_FORMAT "%s %llu", RDS_TRACE_CONN_ARGS,
		  __print_symbolic(__entry->reason, RDS_TRACE_COUNTERS), __entry->count)
);

TRACE_EVENT(rds_error,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_name *what, int code),
	TP_ARGS(conn, what, code),
	TP_STRUCT__entry(
		RDS_TRACE_CONN_ENTRY
		__field(int, code)
		__string_len(what, what->text, strnlen(what->text, sizeof(what->text)))
	),
	TP_fast_assign(
		RDS_TRACE_CONN_ASSIGN;
		__entry->code = code;
		__assign_str(what);
	),
	TP_printk(RDS_TRACE_CONN_FORMAT "%s: %d", RDS_TRACE_CONN_ARGS, __get_str(what),
		  __entry->code)
);

TRACE_EVENT(rds_congestion,
	TP_PROTO(const struct rds_trace_addr *addr, u16 port, bool full),
	TP_ARGS(addr, port, full),
	TP_STRUCT__entry(
		__array(u8, addr, 16)
		__field(u16, port)
		__field(bool, full)
	),
	TP_fast_assign(
		memcpy(__entry->addr, addr->octets, 16);
		__entry->port = port;
		__entry->full = full;
	),
	TP_printk("%pI6c port %u %s", __entry->addr, __entry->port,
		  __entry->full ? "congested" : "has room")
);

/* The numbers and names of TransportId in socket/transport_id.rs. */
#define RDS_TRACE_TRANSPORTS	{ 0, "infiniband" }, { 2, "tcp" }, { 3, "loopback" }
/* The numbers and names of TracedVerb in trace.rs. */
#define RDS_TRACE_OPERATIONS	{ 0, "write" }, { 1, "read" }, { 2, "fetch_add" }, \
				{ 3, "compare_swap" }

/*
 * A message. Its ports are from the sender to the receiver at either end. It has no sequence number
 * on loopback.
 */
DECLARE_EVENT_CLASS(rds_message,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_message *message),
	TP_ARGS(conn, message),
	TP_STRUCT__entry(
		RDS_TRACE_CONN_ENTRY
		__field(u8, transport)
		__field(u16, sport)
		__field(u16, dport)
		__field(u32, bytes)
		__field(u64, sequence)
	),
	TP_fast_assign(
		RDS_TRACE_CONN_ASSIGN;
		__entry->transport = message->transport;
		__entry->sport = message->sport;
		__entry->dport = message->dport;
		__entry->bytes = message->bytes;
		__entry->sequence = message->sequence;
	),
	TP_printk(RDS_TRACE_CONN_FORMAT "%s port %u -> %u sequence %llu bytes %u",
		  RDS_TRACE_CONN_ARGS,
		  __print_symbolic(__entry->transport, RDS_TRACE_TRANSPORTS),
		  __entry->sport, __entry->dport, __entry->sequence, __entry->bytes)
);

#define DEFINE_RDS_MESSAGE_EVENT(name) \
	DEFINE_EVENT(rds_message, name, \
		     TP_PROTO(const struct rds_trace_conn *conn, \
			      const struct rds_trace_message *message), \
		     TP_ARGS(conn, message))

DEFINE_RDS_MESSAGE_EVENT(rds_msg_queued);
DEFINE_RDS_MESSAGE_EVENT(rds_msg_posted);
DEFINE_RDS_MESSAGE_EVENT(rds_msg_acked);
DEFINE_RDS_MESSAGE_EVENT(rds_msg_received);
DEFINE_RDS_MESSAGE_EVENT(rds_msg_delivered);
DEFINE_RDS_MESSAGE_EVENT(rds_msg_read);

/* Completed requests of a connection's link, and those that are still outstanding. */
DECLARE_EVENT_CLASS(rds_completion,
	TP_PROTO(const struct rds_trace_conn *conn, u8 transport, u32 count, u32 left),
	TP_ARGS(conn, transport, count, left),
	TP_STRUCT__entry(
		RDS_TRACE_CONN_ENTRY
		__field(u8, transport)
		__field(u32, count)
		__field(u32, left)
	),
	TP_fast_assign(
		RDS_TRACE_CONN_ASSIGN;
		__entry->transport = transport;
		__entry->count = count;
		__entry->left = left;
	),
	TP_printk(RDS_TRACE_CONN_FORMAT "%s completed %u left %u", RDS_TRACE_CONN_ARGS,
		  __print_symbolic(__entry->transport, RDS_TRACE_TRANSPORTS),
		  __entry->count, __entry->left)
);

#define DEFINE_RDS_COMPLETION_EVENT(name) \
	DEFINE_EVENT(rds_completion, name, \
		     TP_PROTO(const struct rds_trace_conn *conn, u8 transport, u32 count, \
			      u32 left), \
		     TP_ARGS(conn, transport, count, left))

DEFINE_RDS_COMPLETION_EVENT(rds_send_completed);
DEFINE_RDS_COMPLETION_EVENT(rds_recv_completed);

/* Receives of a connection: those that were posted just now, and all that are posted. */
DECLARE_EVENT_CLASS(rds_recv_ring,
	TP_PROTO(const struct rds_trace_conn *conn, u32 count, u32 posted),
	TP_ARGS(conn, count, posted),
	TP_STRUCT__entry(
		RDS_TRACE_CONN_ENTRY
		__field(u32, count)
		__field(u32, posted)
	),
	TP_fast_assign(
		RDS_TRACE_CONN_ASSIGN;
		__entry->count = count;
		__entry->posted = posted;
	),
	TP_printk(RDS_TRACE_CONN_FORMAT "added %u posted %u", RDS_TRACE_CONN_ARGS, __entry->count,
		  __entry->posted)
);

#define DEFINE_RDS_RECV_RING_EVENT(name) \
	DEFINE_EVENT(rds_recv_ring, name, \
		     TP_PROTO(const struct rds_trace_conn *conn, u32 count, u32 posted), \
		     TP_ARGS(conn, count, posted))

DEFINE_RDS_RECV_RING_EVENT(rds_recv_posted);
DEFINE_RDS_RECV_RING_EVENT(rds_recv_ring_empty);

/* A work request of an operation. All requests of an operation have its number. */
DECLARE_EVENT_CLASS(rds_operation,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_operation *operation),
	TP_ARGS(conn, operation),
	TP_STRUCT__entry(
		RDS_TRACE_CONN_ENTRY
		__field(u8, kind)
		__field(bool, last)
		__field(u32, bytes)
		__field(u32, status)
		__field(u64, operation)
	),
	TP_fast_assign(
		RDS_TRACE_CONN_ASSIGN;
		__entry->kind = operation->kind;
		__entry->last = operation->last;
		__entry->bytes = operation->bytes;
		__entry->status = operation->status;
		__entry->operation = operation->number;
	),
	TP_printk(RDS_TRACE_CONN_FORMAT "%s bytes %u%s operation %llu status %s",
		  RDS_TRACE_CONN_ARGS,
		  __print_symbolic(__entry->kind, RDS_TRACE_OPERATIONS), __entry->bytes,
		  __entry->last ? " last" : "", __entry->operation,
		  rdma_show_wc_status(__entry->status))
);

DEFINE_EVENT_PRINT(rds_operation, rds_op_posted,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_operation *operation),
	TP_ARGS(conn, operation),
	TP_printk(RDS_TRACE_CONN_FORMAT "%s bytes %u%s operation %llu", RDS_TRACE_CONN_ARGS,
		  __print_symbolic(__entry->kind, RDS_TRACE_OPERATIONS), __entry->bytes,
		  __entry->last ? " last" : "", __entry->operation)
);

DEFINE_EVENT(rds_operation, rds_op_completed,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_operation *operation),
	TP_ARGS(conn, operation)
);

/* Memory of a program on the device of a local address. It has no key of its own with rkey 0. */
DECLARE_EVENT_CLASS(rds_mr,
	TP_PROTO(const struct rds_trace_addr *addr, const struct rds_trace_mr *mr),
	TP_ARGS(addr, mr),
	TP_STRUCT__entry(
		__array(u8, addr, 16)
		__field(u32, rkey)
		__field(u32, bytes)
		__field(bool, offered)
	),
	TP_fast_assign(
		memcpy(__entry->addr, addr->octets, 16);
		__entry->rkey = mr->rkey;
		__entry->bytes = mr->bytes;
		__entry->offered = mr->offered;
	),
	TP_printk("%pI6c rkey %#x bytes %u for %s", __entry->addr, __entry->rkey, __entry->bytes,
		  __entry->offered ? "peers" : "an operation")
);

#define DEFINE_RDS_MR_EVENT(name) \
	DEFINE_EVENT(rds_mr, name, \
		     TP_PROTO(const struct rds_trace_addr *addr, const struct rds_trace_mr *mr), \
		     TP_ARGS(addr, mr))

DEFINE_RDS_MR_EVENT(rds_mr_registered);
DEFINE_RDS_MR_EVENT(rds_mr_released);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rds_trace
#include <trace/define_trace.h>
