// SPDX-License-Identifier: GPL-2.0
//
// Waits for lookups of an object of soft-RoCE before the object is freed.
//
// rxe_pool_get_index() finds an object under RCU and then takes a reference. __rxe_cleanup()
// removes the object from the table and waits for its references. It does not wait for a lookup
// that has found the object and has no reference yet. The RDMA core frees the object right after. A
// packet that arrives for a queue pair in destruction then reads freed memory: "KASAN:
// slab-use-after-free in rxe_pool_get_index", called by rxe_rcv().
//
// After the removal no lookup can find the object, so one grace period is enough. It begins after
// the last reference is gone. It is an expedited one, as tests create and destroy many objects.
// Address handles that are destroyed in atomic context cannot wait.
//
// Changes: drivers/infiniband/sw/rxe/rxe_pool.c +3 -0

@@
@@
 __rxe_cleanup(struct rxe_pool_elem *elem, bool sleepable)
 {
 	...
+	/* Waits for a lookup that has found the object, and has no reference yet. */
+	if (sleepable) {
+		synchronize_rcu_expedited();
+	}
 	if (pool->cleanup)
 		pool->cleanup(elem);
 	...
 }
