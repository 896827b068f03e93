/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for the KUnit suites. */
#ifndef RDS_RUST_HELPERS_KUNIT_H
#define RDS_RUST_HELPERS_KUNIT_H

#include <rdma/ib_verbs.h>

#include "helpers_mr.h"

struct ib_device *rds_rust_stub_alloc(int node, bool direct);
void rds_rust_stub_free(struct ib_device *device);
bool rds_rust_stub_translates(struct ib_device *device);
int rds_rust_stub_share(struct ib_device *device, unsigned int offset, unsigned long size,
			bool untrusted);
int rds_rust_stub_map(struct ib_device *device, unsigned int order);
int rds_rust_stub_post(struct ib_device *device, const struct rds_ib_operation *operation,
		       struct rds_ib_operation *asked);
int rds_rust_online_nodes(void);
unsigned int rds_rust_pool_dma_connections(void);

#endif
