// SPDX-License-Identifier: GPL-2.0
//
// Gives soft-RoCE a device of the DMA API, as an adapter has, if the parameter dma of its module
// says so: 1 is a device of no bus, whose memory bounces with swiotlb=force; the name of a PCI
// device is that one, which an IOMMU may be before. Without the parameter memory is used where it
// is, as by the kernel's own.
//
// Then what users in the kernel post has addresses of the DMA API, and each access is translated:
// pages of regions when they are set, all else when it is used. A WARNING tells of an address
// that nothing is mapped at, or no bounce buffer if all memory has to bounce. User verbs use
// their pages, as before.
//
// Changes: drivers/infiniband/sw/rxe/rxe_mr.c +34 -4
// Changes: drivers/infiniband/sw/rxe/rxe_verbs.c +39 -2

@@
@@
 #include "rxe_loc.h"
+#include <linux/dma-direct.h>
+#include <linux/dma-mapping.h>
+#include <linux/iommu.h>
+#include <linux/swiotlb.h>
+
+/* NULL, and a report, if the device has nothing at @address. */
+static struct page *rxe_dma_page(struct ib_device *device, u64 address)
+{
+	struct device *dma = device->dma_device;
+	struct iommu_domain *domain;
+	phys_addr_t phys;
+	bool found;
+
+	if (ib_uses_virt_dma(device))
+		return ib_virt_dma_to_page(address);
+	domain = iommu_get_domain_for_dev(dma);
+	if (domain && domain->type & __IOMMU_DOMAIN_PAGING) {
+		phys = iommu_iova_to_phys(domain, address);
+		found = phys;
+	} else {
+		phys = dma_to_phys(dma, address);
+		found = pfn_valid(PHYS_PFN(phys));
+		if (is_swiotlb_force_bounce(dma))
+			found = swiotlb_find_pool(dma, phys);
+	}
+	if (WARN(!found, "rxe: nothing is mapped at %llx\n", address))
+		return NULL;
+	return pfn_to_page(PHYS_PFN(phys));
+}

@@
identifier ibmr, dma_addr;
expression address;
@@
 rxe_set_page(struct ib_mr *ibmr, u64 dma_addr)
 {
	<...
-	ib_virt_dma_to_page(address)
+	rxe_dma_page(ibmr->device, address)
	...>
 }

@@
expression page, address;
identifier mr, f = {rxe_mr_copy_dma};
@@
 f(struct rxe_mr *mr, ...)
 {
	<...
-	page = ib_virt_dma_to_page(address);
+	page = rxe_dma_page(mr->ibmr.device, address);
+	if (!page)
+		return;
	...>
 }

@@
expression page, address;
identifier mr, f = {rxe_mr_do_atomic_op, rxe_mr_do_atomic_write};
@@
 f(struct rxe_mr *mr, ...)
 {
	<...
-	page = ib_virt_dma_to_page(address);
+	page = rxe_dma_page(mr->ibmr.device, address);
+	if (!page)
+		return RESPST_ERR_RKEY_VIOLATION;
	...>
 }

@@
@@
 #include "rxe_hw_counters.h"
+#include <linux/device/faux.h>
+#include <linux/dma-mapping.h>
+#include <linux/pci.h>
+
+static char *rxe_dma;
+module_param_named(dma, rxe_dma, charp, 0444);
+MODULE_PARM_DESC(dma, "Device of the DMA API: 1, or the name of a PCI device");
+
+/* NULL if there is none; rxe_put_dma_device() gives it back. */
+static struct device *rxe_get_dma_device(void)
+{
+	static struct device_dma_parameters parms;
+	static atomic_t made;
+	static u64 mask;
+	struct faux_device *faux;
+	char name[32];
+
+	if (!rxe_dma)
+		return NULL;
+	if (strcmp(rxe_dma, "1"))
+		return bus_find_device_by_name(&pci_bus_type, NULL, rxe_dma);
+	snprintf(name, sizeof(name), "rxe_dma.%d", atomic_inc_return(&made));
+	faux = faux_device_create(name, NULL, NULL);
+	if (!faux)
+		return NULL;
+	parms.max_segment_size = UINT_MAX;
+	faux->dev.dma_mask = &mask;
+	faux->dev.dma_parms = &parms;
+	dma_set_mask_and_coherent(&faux->dev, DMA_BIT_MASK(64));
+	return &faux->dev;
+}
+
+static void rxe_put_dma_device(struct device *device)
+{
+	if (!device)
+		return;
+	if (dev_is_pci(device))
+		put_device(device);
+	else
+		faux_device_destroy(to_faux_device(device));
+}
+
+static void rxe_dealloc_with_dma(struct ib_device *dev)
+{
+	struct device *dma = dev->dma_device;
+
+	rxe_dealloc(dev);
+	rxe_put_dma_device(dma);
+}

@@
expression dev, name;
@@
-ib_register_device(dev, name, NULL)
+ib_register_device(dev, name, rxe_get_dma_device())

@@
identifier ops;
@@
 struct ib_device_ops ops = {
-	.dealloc_driver = rxe_dealloc,
+	.dealloc_driver = rxe_dealloc_with_dma,
 };
