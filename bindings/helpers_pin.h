/* SPDX-License-Identifier: GPL-2.0 */
/* C functions for the wrappers of pinned memory in kapi/pin.rs. */
#ifndef RDS_RUST_HELPERS_PIN_H
#define RDS_RUST_HELPERS_PIN_H

#include <linux/mm_types.h>
#include <linux/types.h>

/* Charge for pinned pages. */
struct rds_rust_pin_charge {
	struct mm_struct *mm;
	unsigned long pages;
};

bool rds_rust_may_pin(void);
int rds_rust_pin_charge(struct rds_rust_pin_charge *charge, unsigned long pages);
void rds_rust_pin_uncharge(struct rds_rust_pin_charge *charge);
long rds_rust_pin_pages(unsigned long address, unsigned int count, bool writable,
			struct page **pages);
void rds_rust_unpin_pages(struct page **pages, unsigned long count, bool dirty);

#endif
