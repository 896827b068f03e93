// SPDX-License-Identifier: GPL-2.0
/*
 * ELF notes of the module: its version, and features that programs may look for.
 * /sys/module/rds_rust/notes shows those of the loaded module. Oracle's kernels publish features in
 * the same way, through file names.
 */
#include <linux/elfnote.h>

/* The type of a note has no meaning. */
#define RDS_NOTE(name, text) ELFNOTE64(name, 0, text)

/* A feature that C RDS lacks, with the version that introduced it. */
#define RDS_FEATURE(name, since) RDS_NOTE("rds.feature-" name, since)

RDS_NOTE("rds.release", RDS_RUST_RELEASE);

/* RDS_CONN_RESET and RDS6_CONN_RESET. */
RDS_FEATURE("conn_reset", "0.1.0");
/*
 * Connections without messages release their queue pair, and RDS_INFO_CONNECTIONS shows which are
 * at rest.
 */
RDS_FEATURE("conn_rest", "0.1.0");
/*
 * ib_rx_total_frags counts the current buffers, in units of 16 KiB. ib_rx_total_incs counts the
 * messages that wait to be read.
 */
RDS_FEATURE("rx_gauges", "0.1.0");
/* RDMA over iWARP. */
RDS_FEATURE("iwarp", "0.1.0");
