// SPDX-License-Identifier: GPL-2.0
/*
 * C functions for the KUnit suites: a device without a bus, for which memory is mapped, and the
 * device's view of that memory. It has no IOMMU, so it uses the kernel's direct mappings. With
 * swiotlb=force these go through bounce buffers.
 */
#include <linux/atomic.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/swiotlb.h>

#include "helpers_fake_dma.h"

/**
 * rds_rust_fake_dma_create() - create a device without a bus
 * @dma: data of the device
 * @direct: use no bounce buffers on any machine
 *
 * Like a real adapter, the device can address all memory in pieces of any size. May sleep.
 *
 * Return: 0, or a negative errno if there is no device.
 */
int rds_rust_fake_dma_create(struct rds_fake_dma *dma, bool direct)
{
	static atomic_t made;
	struct device *device;
	char name[32];
	int err;

	snprintf(name, sizeof(name), "rds_fake_dma.%d", atomic_inc_return(&made));
	dma->faux = faux_device_create(name, NULL, NULL);
	if (!dma->faux)
		return -ENOMEM;
	device = &dma->faux->dev;
	device->dma_mask = &dma->mask;
	device->dma_parms = &dma->parms;
#ifdef CONFIG_SWIOTLB
	if (direct)
		device->dma_io_tlb_mem = NULL;
#endif
	dma_set_max_seg_size(device, UINT_MAX);
	err = dma_set_mask_and_coherent(device, DMA_BIT_MASK(64));
	if (err)
		rds_rust_fake_dma_destroy(dma);
	return err;
}

/**
 * rds_rust_fake_dma_destroy() - destroy a device without a bus
 * @dma: data of the device
 *
 * Sleeps.
 */
void rds_rust_fake_dma_destroy(struct rds_fake_dma *dma)
{
	if (!dma->faux)
		return;
	/* The fields are part of @dma, which may go before the device. */
	dma->faux->dev.dma_parms = NULL;
	dma->faux->dev.dma_mask = NULL;
	faux_device_destroy(dma->faux);
}

/* Returns the memory at a DMA address, or NULL if the IOMMU has no mapping there. Any context. */
static void *find(struct device *device, u64 address)
{
#ifdef CONFIG_IOMMU_API
	struct iommu_domain *domain = iommu_get_domain_for_dev(device);

	if (domain && domain->type & __IOMMU_DOMAIN_PAGING) {
		phys_addr_t phys = iommu_iova_to_phys(domain, address);

		return phys ? phys_to_virt(phys) : NULL;
	}
#endif
	return phys_to_virt(dma_to_phys(device, address));
}

/**
 * rds_rust_fake_dma_access() - read or write memory as a device
 * @device: the device
 * @address: DMA address
 * @bytes: data
 * @size: number of bytes
 * @writes: the device writes @bytes; otherwise it reads them
 *
 * Any context.
 *
 * Return: 0, or -EFAULT if an IOMMU has no mapping there. A part may have been copied then.
 */
int rds_rust_fake_dma_access(struct device *device, u64 address, void *bytes, size_t size,
			     bool writes)
{
	while (size) {
		size_t some = min_t(size_t, size, PAGE_SIZE - offset_in_page(address));
		void *memory = find(device, address);

		if (!memory)
			return -EFAULT;
		if (writes)
			memcpy(memory, bytes, some);
		else
			memcpy(bytes, memory, some);
		address += some;
		bytes += some;
		size -= some;
	}
	return 0;
}

/**
 * rds_rust_fake_dma_bounce_bytes() - return the total size of bounce buffers
 * @device: the device
 *
 * Return: the size in bytes if the device always uses bounce buffers, otherwise 0.
 */
size_t rds_rust_fake_dma_bounce_bytes(struct device *device)
{
#ifdef CONFIG_SWIOTLB
	if (is_swiotlb_force_bounce(device) && !device_iommu_mapped(device))
		return device->dma_io_tlb_mem->nslabs << IO_TLB_SHIFT;
#endif
	return 0;
}
