// SPDX-License-Identifier: GPL-2.0
/*
 * ELF notes, which /sys/module/rds_rust/notes shows of the module that is loaded: its version, and what
 * programs may look for. Oracle's kernels tell in the same way, by the names of the files.
 */
#include <linux/elfnote.h>

/* The number of a note says nothing. */
#define RDS_NOTE(name, text) ELFNOTE64(name, 0, text)

/* What has come since C RDS, with the version that it came in. */
#define RDS_FEATURE(name, since) RDS_NOTE("rds.feature-" name, since)

RDS_NOTE("rds.release", RDS_RUST_RELEASE);

/* RDS_CONN_RESET and RDS6_CONN_RESET. */
RDS_FEATURE("conn_reset", "0.1.0");
/* Connections without a message give up their queue pair, and RDS_INFO_CONNECTIONS says which rest. */
RDS_FEATURE("conn_rest", "0.1.0");
/* ib_rx_total_frags is what buffers take now, in units of 16 KiB, and ib_rx_total_incs what waits to be read. */
RDS_FEATURE("rx_gauges", "0.1.0");
/* RDMA over iWARP. */
RDS_FEATURE("iwarp", "0.1.0");
