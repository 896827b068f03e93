// SPDX-License-Identifier: GPL-2.0
//
// Waits until nobody looks at an object of soft-RoCE any more before it is freed.
//
// rxe_pool_get_index() finds an object under RCU and then asks for a reference. __rxe_cleanup()
// removes the object from the table and waits for its references, but not for who has found it and
// has none yet. The RDMA core frees it right after. A packet that arrives for a queue pair that
// goes then reads freed memory: "KASAN: slab-use-after-free in rxe_pool_get_index", called by
// rxe_rcv().
//
// After the removal nobody finds the object anew, so one grace period is enough. It begins after
// the last reference is gone, and is an expedited one, as tests make and destroy many objects.
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
