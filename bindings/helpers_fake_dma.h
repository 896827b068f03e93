/* SPDX-License-Identifier: GPL-2.0 */
/* DMA devices of the fake RDMA devices in the KUnit suites; see helpers_fake_dma.c. */
#ifndef RDS_RUST_HELPERS_FAKE_DMA_H
#define RDS_RUST_HELPERS_FAKE_DMA_H

#include <linux/device.h>
#include <linux/device/faux.h>

struct rds_fake_dma {
	struct faux_device *faux;
	u64 mask;
	struct device_dma_parameters parms;
};

int rds_rust_fake_dma_create(struct rds_fake_dma *dma, bool direct);
void rds_rust_fake_dma_destroy(struct rds_fake_dma *dma);
int rds_rust_fake_dma_access(struct device *device, u64 address, void *bytes, size_t size,
			     bool writes);
size_t rds_rust_fake_dma_bounce_bytes(struct device *device);

#endif
