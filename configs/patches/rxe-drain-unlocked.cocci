// SPDX-License-Identifier: GPL-2.0
//
// Frees the packets of a lost connection with interrupts enabled, and without a lock.
//
// rxe_receiver() and rxe_completer() free them with the queue pair's state_lock held and interrupts
// disabled. The pages of a network device with a page pool, such as virtio_net, go back to the
// pool, which enables softirqs on the way. Lockdep reports that, and if the softirq finds another
// packet for the same queue pair, the processor waits for the lock that it holds.
//
// The lists of packets have a lock of their own. Whoever drains them is the queue pair's task, or
// runs while the tasks are stopped, so nobody handles a packet at the same time.
//
// Changes: drivers/infiniband/sw/rxe/rxe_comp.c +1 -1
// Changes: drivers/infiniband/sw/rxe/rxe_resp.c +1 -1

@@
identifier drain = {drain_req_pkts, drain_resp_pkts};
identifier flush = {flush_recv_queue, flush_send_queue};
expression qp, flags;
@@
-drain(qp);
 flush(...);
 spin_unlock_irqrestore(&qp->state_lock, flags);
+drain(qp);
