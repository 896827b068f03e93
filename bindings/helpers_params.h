/* SPDX-License-Identifier: GPL-2.0 */
/* Module parameters. The functions have no arguments, so Kbuild declares them safe for Rust. */
#ifndef RDS_RUST_HELPERS_PARAMS_H
#define RDS_RUST_HELPERS_PARAMS_H

unsigned int rds_rust_param_max_frag(void);
unsigned int rds_rust_param_pool_limit_mib(void);
unsigned int rds_rust_param_max_conns(void);
unsigned int rds_rust_param_max_conns_per_peer(void);
unsigned int rds_rust_param_idle_secs(void);
unsigned int rds_rust_param_rds_ib_retry_count(void);
unsigned int rds_rust_param_tcp(void);

#endif
