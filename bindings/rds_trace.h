/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints rds:*. Addresses are shown as IPv6 addresses, IPv4 ones as IPv4-mapped. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rds

#if !defined(RDS_RUST_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define RDS_RUST_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>
#include "helpers_trace.h"

#define rds_trace_len(name) strnlen((const char *)(name)->text, sizeof((name)->text))

TRACE_EVENT(rds_conn_state,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_name *event,
		 const struct rds_trace_name *from, const struct rds_trace_name *to),
	TP_ARGS(conn, event, from, to),
	TP_STRUCT__entry(
		__array(u8, laddr, 16)
		__array(u8, faddr, 16)
		__field(u8, tos)
		__string_len(event, event->text, rds_trace_len(event))
		__string_len(from, from->text, rds_trace_len(from))
		__string_len(to, to->text, rds_trace_len(to))
	),
	TP_fast_assign(
		memcpy(__entry->laddr, conn->laddr, 16);
		memcpy(__entry->faddr, conn->faddr, 16);
		__entry->tos = conn->tos;
		__assign_str(event);
		__assign_str(from);
		__assign_str(to);
	),
	TP_printk("<%pI6c,%pI6c,%u> %s: %s -> %s", __entry->laddr, __entry->faddr, __entry->tos,
		  __get_str(event), __get_str(from), __get_str(to))
);

TRACE_EVENT(rds_drop,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_name *reason, u64 count),
	TP_ARGS(conn, reason, count),
	TP_STRUCT__entry(
		__array(u8, laddr, 16)
		__array(u8, faddr, 16)
		__field(u8, tos)
		__field(u64, count)
		__string_len(reason, reason->text, rds_trace_len(reason))
	),
	TP_fast_assign(
		memcpy(__entry->laddr, conn->laddr, 16);
		memcpy(__entry->faddr, conn->faddr, 16);
		__entry->tos = conn->tos;
		__entry->count = count;
		__assign_str(reason);
	),
	TP_printk("<%pI6c,%pI6c,%u> %s %llu", __entry->laddr, __entry->faddr, __entry->tos,
		  __get_str(reason), __entry->count)
);

TRACE_EVENT(rds_error,
	TP_PROTO(const struct rds_trace_conn *conn, const struct rds_trace_name *what, int code),
	TP_ARGS(conn, what, code),
	TP_STRUCT__entry(
		__array(u8, laddr, 16)
		__array(u8, faddr, 16)
		__field(u8, tos)
		__field(int, code)
		__string_len(what, what->text, rds_trace_len(what))
	),
	TP_fast_assign(
		memcpy(__entry->laddr, conn->laddr, 16);
		memcpy(__entry->faddr, conn->faddr, 16);
		__entry->tos = conn->tos;
		__entry->code = code;
		__assign_str(what);
	),
	TP_printk("<%pI6c,%pI6c,%u> %s: %d", __entry->laddr, __entry->faddr, __entry->tos,
		  __get_str(what), __entry->code)
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

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rds_trace
#include <trace/define_trace.h>
