/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for the RDMA wrappers of kapi/, as helpers.h has them for the others. */
#ifndef RDS_RUST_HELPERS_RDMA_H
#define RDS_RUST_HELPERS_RDMA_H

#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

int rds_ib_node_type(const struct ib_device *device);

#endif
