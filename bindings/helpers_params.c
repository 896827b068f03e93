// SPDX-License-Identifier: GPL-2.0
/* Module parameters. Parameters of the module! macro do not appear in sysfs. */
#include <linux/module.h>

#include "helpers_params.h"

/* A number that is set when the module is loaded, and is readable afterwards. */
#define RDS_PARAM(name, initial, text)		\
	static unsigned int name = initial;	\
	module_param(name, uint, 0444);		\
	MODULE_PARM_DESC(name, text);		\
	unsigned int rds_rust_param_##name(void)	\
	{					\
		return name;			\
	}

RDS_PARAM(pool_limit_mib, 0,
	  "Most memory of one pool of buffers in MiB, at least 2; 0 is a quarter of all memory")
RDS_PARAM(max_conns, 65536, "Most connections of this node, at least 1")
RDS_PARAM(max_conns_per_peer, 1024,
	  "Most connections with one peer address, for all local addresses and types of service")
RDS_PARAM(idle_secs, 600,
	  "Seconds without a message after which a connection is closed; 0: never")
#ifdef CONFIG_RDS_RUST_RDMA
RDS_PARAM(max_frag, 8192, "Most payload of a frame in bytes: 4096, 8192 or 16384")
/* Name and default are those of C RDS. */
RDS_PARAM(rds_ib_retry_count, 1,
	  "How often a device sends again what its peer does not acknowledge, 0 to 7")
#endif
#ifdef CONFIG_RDS_RUST_TCP
RDS_PARAM(tcp, 0, "1: RDS over TCP, too, in each network namespace; 0: not")
#endif
