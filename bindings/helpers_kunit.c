// SPDX-License-Identifier: GPL-2.0
/*
 * C functions for the KUnit suites: an RDMA device that only has memory mapped for it and records a
 * work request. Its memory is mapped for a PCI device, QEMU's e1000, or for a device without a bus.
 */
#include <linux/completion.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/pci.h>
#include <rdma/ib_verbs.h>

#include "helpers_fake_dma.h"
#include "helpers_kunit.h"

#define RDS_STUB_PCI_DEVICE 0x100e

static unsigned int pool_dma_connections = 10;
module_param(pool_dma_connections, uint, 0444);
MODULE_PARM_DESC(pool_dma_connections, "Most connections in the suite rds_pool_dma");

unsigned int rds_rust_pool_dma_connections(void)
{
	return pool_dma_connections;
}

struct rds_stub {
	struct ib_device device;
	/* PCI device for which memory is mapped. NULL if @dma is used. */
	struct pci_dev *pci;
	struct rds_fake_dma dma;
	int node;
};

struct rds_stub_pd {
	struct ib_pd pd;
};

static int rds_stub_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

static int rds_stub_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

struct rds_stub_qp {
	struct ib_qp qp;
	struct rds_ib_operation *asked;
};

/* Records an atomic operation. Other operations have fewer fields than are read here. */
static int rds_stub_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			      const struct ib_send_wr **bad_wr)
{
	struct rds_stub_qp *own = container_of(qp, struct rds_stub_qp, qp);
	const struct ib_atomic_wr *atomic = atomic_wr(wr);

	*own->asked = (struct rds_ib_operation) {
		.opcode = wr->opcode,
		.signaled = wr->send_flags & IB_SEND_SIGNALED,
		.lkey = wr->sg_list->lkey,
		.length = wr->sg_list->length,
		.address = wr->sg_list->addr,
		.rkey = atomic->rkey,
		.remote_address = atomic->remote_addr,
		.compare_add = atomic->compare_add,
		.swap = atomic->swap,
		.compare_add_mask = atomic->compare_add_mask,
		.swap_mask = atomic->swap_mask,
	};
	return 0;
}

static const struct ib_device_ops rds_stub_ops = {
	.alloc_pd = rds_stub_alloc_pd,
	.dealloc_pd = rds_stub_dealloc_pd,
	.post_send = rds_stub_post_send,
	INIT_RDMA_OBJ_SIZE(ib_pd, rds_stub_pd, pd),
};

static bool find_dma_device(struct rds_stub *stub, int node, bool direct)
{
	struct device *device;

	if (direct) {
		if (rds_rust_fake_dma_create(&stub->dma, false))
			return false;
		device = &stub->dma.faux->dev;
	} else {
		stub->pci = pci_get_device(PCI_VENDOR_ID_INTEL, RDS_STUB_PCI_DEVICE, NULL);
		if (!stub->pci)
			return false;
		device = &stub->pci->dev;
	}
	stub->node = dev_to_node(device);
	if (node >= 0)
		set_dev_node(device, node);
	stub->device.dev.parent = device;
	stub->device.dma_device = device;
	return true;
}

/**
 * rds_rust_stub_alloc() - create a stub device
 * @node: NUMA node to which the DMA device is assigned meanwhile; ignored if negative
 * @direct: map memory for a device without a bus and without an IOMMU, instead of the PCI device
 *
 * Return: the device, or NULL.
 */
struct ib_device *rds_rust_stub_alloc(int node, bool direct)
{
	struct rds_stub *stub = ib_alloc_device(rds_stub, device);

	if (!stub)
		return NULL;
	if (!find_dma_device(stub, node, direct)) {
		ib_dealloc_device(&stub->device);
		return NULL;
	}
	ib_set_device_ops(&stub->device, &rds_stub_ops);
	stub->device.attrs.kernel_cap_flags = IBK_LOCAL_DMA_LKEY;
	/* A registered device has one reference, too. */
	refcount_set(&stub->device.refcount, 1);
	return &stub->device;
}

/**
 * rds_rust_stub_free() - free a stub device
 * @device: the device
 *
 * Sleeps until the last reference is dropped.
 */
void rds_rust_stub_free(struct ib_device *device)
{
	struct rds_stub *stub = container_of(device, struct rds_stub, device);
	struct pci_dev *pci = stub->pci;

	ib_device_put(device);
	wait_for_completion(&device->unreg_completion);
	set_dev_node(device->dma_device, stub->node);
	rds_rust_fake_dma_destroy(&stub->dma);
	ib_dealloc_device(device);
	pci_dev_put(pci);
}

/**
 * rds_rust_stub_translates() - check whether an IOMMU translates the device's addresses
 * @device: the device
 *
 * Return: true if the IOMMU uses a page table.
 */
bool rds_rust_stub_translates(struct ib_device *device)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(device->dma_device);

	return domain && domain->type & __IOMMU_DOMAIN_PAGING;
}

/**
 * rds_rust_stub_share() - map a part of a page for peers, and unmap it
 * @device: the device
 * @offset: start in the page
 * @size: size in bytes
 * @untrusted: treat the device as untrusted meanwhile
 *
 * An untrusted device must not see the rest of the page. So the kernel gives it a copy of the part.
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_stub_share(struct ib_device *device, unsigned int offset, unsigned long size,
			bool untrusted)
{
	struct rds_stub *stub = container_of(device, struct rds_stub, device);
	struct page *page = alloc_page(GFP_KERNEL);
	struct rds_ib_mapping mapping;
	int err;

	if (!page)
		return -ENOMEM;
	stub->pci->untrusted = untrusted;
	err = rds_rust_ib_map_pages(device, &page, 1, offset, size, true, true, &mapping);
	if (!err)
		rds_rust_ib_unmap_pages(device, &mapping);
	stub->pci->untrusted = false;
	__free_page(page);
	return err;
}

/**
 * rds_rust_stub_map() - map contiguous memory for a local operation, and unmap it
 * @device: the device
 * @order: number of pages, as a power of two
 *
 * Sleeps.
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_stub_map(struct ib_device *device, unsigned int order)
{
	unsigned int i, count = 1u << order;
	struct rds_ib_mapping mapping;
	struct page **pages, *page;
	int err = -ENOMEM;

	page = alloc_pages(GFP_KERNEL, order);
	pages = kmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	if (page && pages) {
		for (i = 0; i < count; i++)
			pages[i] = page + i;
		err = rds_rust_ib_map_pages(device, pages, count, 0, PAGE_SIZE << order, true,
					    false, &mapping);
		if (!err)
			rds_rust_ib_unmap_pages(device, &mapping);
	}
	kfree(pages);
	if (page)
		__free_pages(page, order);
	return err;
}

/**
 * rds_rust_stub_post() - post an atomic operation
 * @device: the device
 * @operation: the operation
 * @asked: set to the work request that the device gets
 *
 * Return: 0 or a negative errno.
 */
int rds_rust_stub_post(struct ib_device *device, const struct rds_ib_operation *operation,
		       struct rds_ib_operation *asked)
{
	struct rds_stub_qp own = { .qp.device = device, .asked = asked };

	return rds_rust_ib_post_operation(&own.qp, operation, 0);
}

int rds_rust_online_nodes(void)
{
	return num_online_nodes();
}
