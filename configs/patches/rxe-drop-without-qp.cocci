// SPDX-License-Identifier: GPL-2.0
//
// Says that a packet has no queue pair before soft-RoCE first drops one.
//
// rxe_rcv() drops a packet together with the queue pair that it is for, and forgets what pkt->qp
// was only after two checks that can fail: those of the length and of the destination. The field is
// in the control block of the packet, where IP had data of its own. With IPv6 that is not zero, so
// a packet for an address that its device has lost makes the kernel drop a reference to a random
// address, and crash.
//
// No check before looks at the field.
//
// Changes: drivers/infiniband/sw/rxe/rxe_recv.c +1 -1

@@
@@
 rxe_rcv(struct sk_buff *skb)
 {
 ...
+pkt->qp = NULL;
 if (unlikely(skb->len < RXE_BTH_BYTES)) goto drop;
 ...
-pkt->qp = NULL;
 ...
 }
