// SPDX-License-Identifier: GPL-2.0
/* C functions for the RDMA wrappers of kapi/. */
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "helpers_rdma.h"

int rds_ib_node_type(const struct ib_device *device)
{
	return device->node_type;
}
