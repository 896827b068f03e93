// SPDX-License-Identifier: GPL-2.0
/* C functions for the wrappers of pinned memory in kapi/pin.rs. */
#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "helpers_fault.h"
#include "helpers_pin.h"

/**
 * rds_rust_may_pin() - check whether the calling process may lock any memory
 *
 * Return: false if RLIMIT_MEMLOCK is 0 and the process has no CAP_IPC_LOCK.
 */
bool rds_rust_may_pin(void)
{
	return can_do_mlock();
}

/**
 * rds_rust_pin_charge() - charge the calling process for pinned pages
 * @charge: set to the charge, for rds_rust_pin_uncharge()
 * @pages: number of pages
 *
 * Applies RLIMIT_MEMLOCK like user verbs do (ib_umem_get_va()).
 *
 * Return: 0, -EPERM if the process may not lock memory at all, -ENOMEM if the limit is exceeded, or
 * -EFAULT without an address space.
 */
int rds_rust_pin_charge(struct rds_rust_pin_charge *charge, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct mm_struct *mm = current->mm;
	u64 pinned;

	if (!mm)
		return -EFAULT;
	if (!can_do_mlock())
		return -EPERM;
	pinned = (u64)atomic64_add_return((s64)pages, &mm->pinned_vm);
	if (pinned > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub((s64)pages, &mm->pinned_vm);
		return -ENOMEM;
	}
	mmgrab(mm);
	*charge = (struct rds_rust_pin_charge){ .mm = mm, .pages = pages };
	return 0;
}

/**
 * rds_rust_pin_uncharge() - return a charge for pinned pages
 * @charge: the charge
 *
 * May sleep.
 */
void rds_rust_pin_uncharge(struct rds_rust_pin_charge *charge)
{
	atomic64_sub((s64)charge->pages, &charge->mm->pinned_vm);
	mmdrop(charge->mm);
}

/**
 * rds_rust_pin_pages() - pin pages of the calling process
 * @address: start address
 * @count: number of pages
 * @writable: pin the pages for writing
 * @pages: array for the pages
 *
 * Sleeps.
 *
 * Return: the number of pages pinned, which may be less than @count, or a negative errno if none
 * was.
 */
long rds_rust_pin_pages(unsigned long address, unsigned int count, bool writable,
			struct page **pages)
{
	if (rds_rust_fails(RDS_FAIL_PIN, NULL))
		return -EOPNOTSUPP;
	return pin_user_pages_fast(address, (int)count,
				   FOLL_LONGTERM | (writable ? FOLL_WRITE : 0), pages);
}

/**
 * rds_rust_unpin_pages() - unpin pages
 * @pages: the pages
 * @count: number of pages
 * @dirty: mark the pages as dirty
 *
 * Sleeps.
 */
void rds_rust_unpin_pages(struct page **pages, unsigned long count, bool dirty)
{
	unpin_user_pages_dirty_lock(pages, count, dirty);
}
