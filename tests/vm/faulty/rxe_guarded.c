// SPDX-License-Identifier: GPL-2.0
/*
 * DMA operations of soft-RoCE's device of no bus that are stricter than those of adapters, with the
 * parameter `guarded` of the module.
 *
 * - Each mapping has pages of addresses for itself. A page that is never mapped follows it, and no
 *   address is used again. So rxe_strict.c sees each access beyond a mapping, or after its end.
 * - The device accesses a copy of the memory, except that of peers (DMA_ATTR_REQUIRE_COHERENT).
 *   Only the calls of the DMA API copy. rxe_strict.c poisons both sides.
 * - The size and the direction of each call have to be those of the mapping.
 *
 * Violations are counted by rxe_strict.c, which also knows the mappings that are left at the end.
 */
#include <linux/dma-map-ops.h>
#include <linux/interval_tree.h>

#include "rxe.h"
#include "rxe_faults.h"

/* Limit of a mapping, as with bounce buffers. */
#define MOST_BYTES SZ_256K
/* Content of a copy beside the memory, and after the mapping. */
#define POISON 0xc7

static bool guarded;
module_param(guarded, bool, 0444);
MODULE_PARM_DESC(guarded, "The device of the DMA API has guard pages and copies of all memory");

struct guarded_map {
	struct interval_tree_node node;
	phys_addr_t phys;
	/* Copy of all pages of the memory. NULL: the device accesses the memory itself. */
	void *copy;
	enum dma_data_direction dir;
};

static struct rb_root_cached maps = RB_ROOT_CACHED;
/* Protects `maps`. Held while bytes are copied. */
static DEFINE_SPINLOCK(maps_lock);
static atomic64_t next_address = ATOMIC64_INIT(1LL << 40);

bool rxe_is_guarded(struct device *dev)
{
	return guarded && strstarts(dev_name(dev), "rxe_dma.");
}

static size_t bytes_of(const struct guarded_map *map)
{
	return PAGE_ALIGN(map->node.last + 1) - PAGE_ALIGN_DOWN(map->node.start);
}

static struct guarded_map *find(u64 first, u64 last)
{
	struct interval_tree_node *node = interval_tree_iter_first(&maps, first, last);

	return node ? container_of(node, struct guarded_map, node) : NULL;
}

/* Returns where the device finds a byte; 0 if no mapping has a part of its page. */
phys_addr_t rxe_guarded_phys(u64 address)
{
	u64 page = PAGE_ALIGN_DOWN(address);
	struct guarded_map *map;
	phys_addr_t phys = 0;
	unsigned long flags;

	spin_lock_irqsave(&maps_lock, flags);
	map = find(page, page + PAGE_SIZE - 1);
	if (map) {
		phys = map->copy ? virt_to_phys(map->copy) : PAGE_ALIGN_DOWN(map->phys);
		phys += address - PAGE_ALIGN_DOWN(map->node.start);
	}
	spin_unlock_irqrestore(&maps_lock, flags);
	return phys;
}

struct page *rxe_guarded_page(u64 address)
{
	phys_addr_t phys = rxe_guarded_phys(address);

	if (!phys) {
		rxe_strict_violate(UNMAPPED, address, 1, false);
		return NULL;
	}
	return pfn_to_page(PHYS_PFN(phys));
}

static dma_addr_t map_phys(struct device *dev, phys_addr_t phys, size_t size, enum dma_data_direction dir,
			   unsigned long attrs)
{
	unsigned int offset = offset_in_page(phys);
	size_t bytes = PAGE_ALIGN(offset + size);
	struct guarded_map *map;
	unsigned long flags;
	u64 start;

	if (!size || size > MOST_BYTES || attrs & DMA_ATTR_MMIO)
		return DMA_MAPPING_ERROR;
	map = kzalloc(sizeof(*map), GFP_ATOMIC | __GFP_NOWARN);
	if (!map)
		return DMA_MAPPING_ERROR;
	if (!(attrs & DMA_ATTR_REQUIRE_COHERENT)) {
		map->copy = alloc_pages_exact(bytes, GFP_ATOMIC | __GFP_NOWARN);
		if (!map->copy) {
			kfree(map);
			return DMA_MAPPING_ERROR;
		}
		memset(map->copy, POISON, bytes);
		if (dir != DMA_FROM_DEVICE && !(attrs & DMA_ATTR_SKIP_CPU_SYNC))
			memcpy(map->copy + offset, phys_to_virt(phys), size);
	}
	map->phys = phys;
	map->dir = dir;
	start = atomic64_fetch_add(bytes + PAGE_SIZE, &next_address) + offset;
	map->node.start = start;
	map->node.last = start + size - 1;
	spin_lock_irqsave(&maps_lock, flags);
	interval_tree_insert(&map->node, &maps);
	spin_unlock_irqrestore(&maps_lock, flags);
	return start;
}

static void unmap_phys(struct device *dev, dma_addr_t address, size_t size, enum dma_data_direction dir,
		       unsigned long attrs)
{
	struct guarded_map *map;
	unsigned long flags;

	spin_lock_irqsave(&maps_lock, flags);
	map = find(address, address);
	if (map && map->node.start == address)
		interval_tree_remove(&map->node, &maps);
	else
		map = NULL;
	spin_unlock_irqrestore(&maps_lock, flags);
	if (!map || map->node.last != address + size - 1 || map->dir != dir)
		rxe_strict_violate(CALL, address, size, false);
	if (!map)
		return;
	if (map->copy) {
		size_t bytes = bytes_of(map);

		if (map->dir != DMA_TO_DEVICE && !(attrs & DMA_ATTR_SKIP_CPU_SYNC))
			memcpy(phys_to_virt(map->phys), map->copy + offset_in_page(map->phys),
			       map->node.last - map->node.start + 1);
		memset(map->copy, POISON, bytes);
		free_pages_exact(map->copy, bytes);
	}
	kfree(map);
}

static void sync(dma_addr_t address, size_t size, enum dma_data_direction dir, bool to_cpu)
{
	struct guarded_map *map;
	unsigned long flags;
	bool valid;

	if (!size)
		return;
	spin_lock_irqsave(&maps_lock, flags);
	map = find(address, address);
	valid = map && address + size - 1 <= map->node.last && map->dir == dir;
	if (valid && map->copy) {
		void *memory = phys_to_virt(map->phys + (address - map->node.start));
		void *copy = map->copy + offset_in_page(map->phys) + (address - map->node.start);

		if (to_cpu && dir != DMA_TO_DEVICE)
			memcpy(memory, copy, size);
		else if (!to_cpu && dir != DMA_FROM_DEVICE)
			memcpy(copy, memory, size);
	}
	spin_unlock_irqrestore(&maps_lock, flags);
	if (!valid)
		rxe_strict_violate(CALL, address, size, to_cpu);
}

static void sync_for_cpu(struct device *dev, dma_addr_t address, size_t size, enum dma_data_direction dir)
{
	sync(address, size, dir, true);
}

static void sync_for_device(struct device *dev, dma_addr_t address, size_t size, enum dma_data_direction dir)
{
	sync(address, size, dir, false);
}

static void unmap_sg(struct device *dev, struct scatterlist *sgl, int nents, enum dma_data_direction dir,
		     unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i)
		unmap_phys(dev, sg_dma_address(sg), sg_dma_len(sg), dir, attrs);
}

/* No entries are merged. */
static int map_sg(struct device *dev, struct scatterlist *sgl, int nents, enum dma_data_direction dir,
		  unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		dma_addr_t address = map_phys(dev, sg_phys(sg), sg->length, dir, attrs);

		if (address == DMA_MAPPING_ERROR) {
			unmap_sg(dev, sgl, i, dir, attrs | DMA_ATTR_SKIP_CPU_SYNC);
			return -ENOMEM;
		}
		sg_dma_address(sg) = address;
		sg_dma_len(sg) = sg->length;
	}
	return nents;
}

static size_t max_mapping_size(struct device *dev)
{
	return MOST_BYTES;
}

static const struct dma_map_ops guarded_ops = {
	.map_phys = map_phys,
	.unmap_phys = unmap_phys,
	.map_sg = map_sg,
	.unmap_sg = unmap_sg,
	.sync_single_for_cpu = sync_for_cpu,
	.sync_single_for_device = sync_for_device,
	.max_mapping_size = max_mapping_size,
};

/* Gives a device the operations, before the kernel decides whether it needs calls to synchronise. */
void rxe_guard(struct device *dev)
{
	/* Otherwise the kernel would ignore them. */
	static_assert(IS_ENABLED(CONFIG_ARCH_HAS_DMA_OPS));

	if (guarded)
		set_dma_ops(dev, &guarded_ops);
}
