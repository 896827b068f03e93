// SPDX-License-Identifier: GPL-2.0
/*
 * Checks that soft-RoCE accesses memory of the DMA API as an adapter may. The mappings of its device
 * are known from the kernel's tracepoints.
 *
 * - Each access is within one mapping, and in its direction. This includes those of peers to a
 *   region. Their atomics have to read and to write.
 * - The device owns each 64 bytes that it accesses: they were mapped, or synchronised for it later
 *   than for the CPU.
 * - With bounce buffers, or the copies of rxe_guarded.c, memory is poisoned that the CPU must not
 *   read: what the device has written since. So is what the device must not read: the bounce buffer
 *   or the copy of a new shard.
 *
 * The parameter `strict` of the module is the start of the names of the devices to check. A violation
 * is counted, and the first ones are warnings, or only logged if `expected` is set. An access fails as
 * on an adapter if nothing is mapped there, or not for its direction. Adapters see no owner.
 */
#include <linux/debugfs.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/interval_tree.h>
#include <linux/tracepoint.h>
#include <linux/xarray.h>

#include "rxe.h"
#include "rxe_faults.h"

#define GRANULE_SHIFT 6
/* Mappings of buffers of messages are at least this large, those of the connection manager smaller. */
#define SHARD_BYTES 0x2000
#define MOST_WARNINGS 5

static char *strict;
module_param(strict, charp, 0444);
MODULE_PARM_DESC(strict, "Start of the names of the DMA API devices to check");

struct mapping {
	struct interval_tree_node node;
	phys_addr_t phys;
	enum dma_data_direction dir;
	bool bounced;
	/* In `ended`. */
	struct list_head list;
	unsigned long owned_by_cpu[];
};

static const char *const violation_names[VIOLATIONS] = { "unmapped", "beyond", "direction", "owner", "call" };

static struct rb_root_cached mappings = RB_ROOT_CACHED;
/* Mappings whose addresses were given to others before their end was traced. */
static LIST_HEAD(ended);
/* Protects both. */
static DEFINE_SPINLOCK(mappings_lock);
static atomic_t counts[VIOLATIONS], accesses, poisoned, regions;
/* A test causes violations. */
static u32 expected;
/* Page numbers of the addresses of regions, by region_key(). The entry of a region that is gone stays. */
static DEFINE_XARRAY_FLAGS(region_pages, XA_FLAGS_LOCK_BH);

static bool is_checked(struct device *dev)
{
	return strict && !strncmp(dev_name(dev), strict, strlen(strict));
}

static struct mapping *find(u64 address)
{
	struct interval_tree_node *node = interval_tree_iter_first(&mappings, address, address);

	return node ? container_of(node, struct mapping, node) : NULL;
}

/* Index in `owned_by_cpu`. */
static unsigned int granule(struct mapping *map, u64 address)
{
	return (address >> GRANULE_SHIFT) - (map->node.start >> GRANULE_SHIFT);
}

static void add(struct device *dev, phys_addr_t phys, u64 address, size_t size, enum dma_data_direction dir,
		bool is_shard)
{
	unsigned int granules = (size >> GRANULE_SHIFT) + 2;
	struct interval_tree_node *old;
	struct mapping *map;
	unsigned long flags;
	phys_addr_t seen;

	/* Not by dma_mapping_error(), which tells DMA_API_DEBUG that the driver has checked. */
	if (address == DMA_MAPPING_ERROR || !size)
		return;
	map = kzalloc(struct_size(map, owned_by_cpu, BITS_TO_LONGS(granules)), GFP_ATOMIC);
	if (WARN_ON_ONCE(!map))
		return;
	map->node.start = address;
	map->node.last = address + size - 1;
	map->phys = phys;
	map->dir = dir;
	seen = rxe_is_guarded(dev) ? rxe_guarded_phys(address) : dma_to_phys(dev, address);
	map->bounced = phys && strstarts(dev_name(dev), "rxe_dma.") && seen != phys;
	if (map->bounced && is_shard) {
		memset(phys_to_virt(seen), 0xd5, size);
		atomic_inc(&poisoned);
	}
	spin_lock_irqsave(&mappings_lock, flags);
	while ((old = interval_tree_iter_first(&mappings, address, map->node.last))) {
		interval_tree_remove(old, &mappings);
		list_add(&container_of(old, struct mapping, node)->list, &ended);
	}
	interval_tree_insert(&map->node, &mappings);
	spin_unlock_irqrestore(&mappings_lock, flags);
}

static void forget(u64 address)
{
	struct mapping *map;
	unsigned long flags;

	spin_lock_irqsave(&mappings_lock, flags);
	list_for_each_entry(map, &ended, list)
		if (map->node.start == address) {
			list_del(&map->list);
			goto out;
		}
	map = find(address);
	if (map && map->node.start != address)
		map = NULL;
	if (map)
		interval_tree_remove(&map->node, &mappings);
out:
	spin_unlock_irqrestore(&mappings_lock, flags);
	kfree(map);
}

static void give(u64 address, size_t size, bool to_cpu)
{
	struct mapping *map;
	unsigned long flags;
	unsigned int first, count;

	if (!size)
		return;
	spin_lock_irqsave(&mappings_lock, flags);
	map = find(address);
	if (map) {
		first = granule(map, address);
		count = granule(map, min(address + size - 1, (u64)map->node.last)) - first + 1;
		if (to_cpu)
			bitmap_set(map->owned_by_cpu, first, count);
		else
			bitmap_clear(map->owned_by_cpu, first, count);
	}
	spin_unlock_irqrestore(&mappings_lock, flags);
}

void rxe_strict_violate(enum rxe_violation what, u64 address, unsigned int size, bool writes)
{
	const char *how = writes ? "write" : "read";

	if (atomic_inc_return(&counts[what]) > MOST_WARNINGS)
		return;
	pr_info("rxe: strict DMA: %s: %s %llx + %u\n", violation_names[what], how, address, size);
	WARN(!READ_ONCE(expected), "rxe: strict DMA: %s\n", violation_names[what]);
}

int rxe_strict_access(struct ib_device *device, u64 address, unsigned int size, bool writes)
{
	enum rxe_violation what = VIOLATIONS;
	struct mapping *map;
	unsigned long flags;
	u64 last = address + size - 1;
	unsigned int end;

	if (ib_uses_virt_dma(device) || !size || !is_checked(device->dma_device))
		return 0;
	atomic_inc(&accesses);
	spin_lock_irqsave(&mappings_lock, flags);
	map = find(address);
	if (!map) {
		what = UNMAPPED;
	} else if (last > map->node.last) {
		what = BEYOND;
	} else if (map->dir != DMA_BIDIRECTIONAL && map->dir != (writes ? DMA_FROM_DEVICE : DMA_TO_DEVICE)) {
		what = DIRECTION;
	} else {
		end = granule(map, last) + 1;
		if (find_next_bit(map->owned_by_cpu, end, granule(map, address)) < end)
			what = OWNER;
		else if (writes && map->bounced)
			memset(phys_to_virt(map->phys + (address - map->node.start)), 0xa5, size);
	}
	spin_unlock_irqrestore(&mappings_lock, flags);
	if (what == VIOLATIONS)
		return 0;
	rxe_strict_violate(what, address, size, writes);
	return what == OWNER ? 0 : -EFAULT;
}

/* Each device numbers its regions from the start. */
static unsigned long region_key(struct rxe_mr *mr, u32 index)
{
	return (unsigned long)mr->ibmr.device->index << 48 | (unsigned long)mr->elem.index << 24 | index;
}

/* Regions of user verbs have the pages of programs, and are not checked. */
static bool is_checked_region(struct rxe_mr *mr)
{
	struct ib_device *device = mr->ibmr.device;

	return mr->ibmr.type == IB_MR_TYPE_MEM_REG && !mr->umem && !ib_uses_virt_dma(device) &&
	       is_checked(device->dma_device);
}

void rxe_strict_region(struct rxe_mr *mr, u32 index, u64 address)
{
	void *page = xa_mk_value(address >> PAGE_SHIFT);

	if (is_checked_region(mr))
		WARN_ON_ONCE(xa_is_err(xa_store_bh(&region_pages, region_key(mr, index), page, GFP_ATOMIC)));
}

int rxe_strict_region_access(struct rxe_mr *mr, u32 index, u32 offset, u32 size, bool writes)
{
	void *page;

	if (!is_checked_region(mr))
		return 0;
	atomic_inc(&regions);
	page = xa_load(&region_pages, region_key(mr, index));
	if (page)
		return rxe_strict_access(mr->ibmr.device, ((u64)xa_to_value(page) << PAGE_SHIFT) + offset, size,
					 writes);
	rxe_strict_violate(UNMAPPED, offset, size, writes);
	return -EFAULT;
}

/*
 * An adapter reports the end of a region when all accesses to it have ended. Soft-RoCE looks at the
 * state of a region before it handles a packet, and may access it for that packet afterwards.
 */
static DEFINE_RWLOCK(accesses_lock);

int rxe_strict_copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length, enum rxe_mr_copy_dir dir,
		    int (*copy)(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
				enum rxe_mr_copy_dir dir))
{
	unsigned long flags;
	int err = -EFAULT;

	if (!is_checked_region(mr))
		return copy(mr, iova, addr, length, dir);
	read_lock_irqsave(&accesses_lock, flags);
	if (mr->state == RXE_MR_STATE_VALID)
		err = copy(mr, iova, addr, length, dir);
	read_unlock_irqrestore(&accesses_lock, flags);
	return err;
}

void rxe_strict_region_ends(struct rxe_mr *mr)
{
	unsigned long flags;

	write_lock_irqsave(&accesses_lock, flags);
	mr->state = RXE_MR_STATE_FREE;
	write_unlock_irqrestore(&accesses_lock, flags);
}

/* Tracepoints. They are called after what they report. */

static void map_phys(void *data, struct device *dev, phys_addr_t phys, dma_addr_t address, size_t size,
		     enum dma_data_direction dir, unsigned long attrs)
{
	if (is_checked(dev))
		add(dev, phys, address, size, dir, dir == DMA_BIDIRECTIONAL && size >= SHARD_BYTES);
}

static void unmap_phys(void *data, struct device *dev, dma_addr_t address, size_t size,
		       enum dma_data_direction dir, unsigned long attrs)
{
	if (is_checked(dev))
		forget(address);
}

static void map_sg(void *data, struct device *dev, struct scatterlist *sgl, int nents, int ents,
		   enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	if (!is_checked(dev))
		return;
	for_each_sg(sgl, sg, ents, i) {
		/* An IOMMU may have merged entries. */
		phys_addr_t phys = rxe_is_guarded(dev) ? sg_phys(sg) : 0;

		add(dev, phys, sg_dma_address(sg), sg_dma_len(sg), dir, false);
	}
}

static void unmap_sg(void *data, struct device *dev, struct scatterlist *sgl, int nents,
		     enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	if (!is_checked(dev))
		return;
	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		forget(sg_dma_address(sg));
	}
}

static void sync_for_cpu(void *data, struct device *dev, dma_addr_t address, size_t size,
			 enum dma_data_direction dir)
{
	if (is_checked(dev))
		give(address, size, true);
}

static void sync_for_device(void *data, struct device *dev, dma_addr_t address, size_t size,
			    enum dma_data_direction dir)
{
	if (is_checked(dev))
		give(address, size, false);
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *point;
} probes[] = {
	{ "dma_map_phys", map_phys },
	{ "dma_unmap_phys", unmap_phys },
	{ "dma_map_sg", map_sg },
	{ "dma_unmap_sg", unmap_sg },
	{ "dma_sync_single_for_cpu", sync_for_cpu },
	{ "dma_sync_single_for_device", sync_for_device },
};

static void find_point(struct tracepoint *point, void *data)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(point->name, probes[i].name))
			probes[i].point = point;
}

void rxe_strict_init(struct dentry *folder)
{
	struct dentry *dir = debugfs_create_dir("strict", folder);
	int i;

	for (i = 0; i < VIOLATIONS; i++)
		debugfs_create_atomic_t(violation_names[i], 0600, dir, &counts[i]);
	debugfs_create_u32("expected", 0600, dir, &expected);
	debugfs_create_atomic_t("accesses", 0400, dir, &accesses);
	debugfs_create_atomic_t("regions", 0400, dir, &regions);
	debugfs_create_atomic_t("poisoned", 0400, dir, &poisoned);
	if (!strict)
		return;
	for_each_kernel_tracepoint(find_point, NULL);
	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (WARN_ON(!probes[i].point) ||
		    tracepoint_probe_register(probes[i].point, probes[i].probe, NULL))
			pr_err("no tracepoint %s\n", probes[i].name);
}

void rxe_strict_exit(void)
{
	struct interval_tree_node *node;
	int i;

	if (!strict)
		return;
	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (probes[i].point)
			tracepoint_probe_unregister(probes[i].point, probes[i].probe, NULL);
	tracepoint_synchronize_unregister();
	/* All devices are gone. */
	while ((node = interval_tree_iter_first(&mappings, 0, ULONG_MAX))) {
		WARN_ONCE(1, "rxe: strict DMA: %lx to %lx is left mapped\n", node->start, node->last);
		interval_tree_remove(node, &mappings);
		kfree(container_of(node, struct mapping, node));
	}
	WARN_ON(!list_empty(&ended));
	xa_destroy(&region_pages);
}
