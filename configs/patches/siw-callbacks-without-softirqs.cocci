// SPDX-License-Identifier: GPL-2.0
//
// Keeps softirqs away while a callback of a soft-iWARP socket has the socket's sk_callback_lock.
//
// TCP calls them from a softirq, or from a process that handles what has arrived while it had the
// socket. There softirqs are enabled, and siw_qp_llp_data_ready() takes the lock as if they were
// not. A softirq writes the lock of another socket, in inet_child_forget(), for a connection that
// nobody has taken yet when its listener is closed. Lockdep reports "inconsistent {IN-SOFTIRQ-W} ->
// {SOFTIRQ-ON-R} usage", or if a process closes the listener how it nests its locks, with
// siw_destroy_listen() in the trace; and it is off from then on.
//
// All who write the lock disable softirqs. Nothing in these callbacks sleeps, as most of the time
// they run in softirqs.
//
// Changes: drivers/infiniband/sw/siw/siw_cm.c +7 -7
// Changes: drivers/infiniband/sw/siw/siw_qp.c +4 -4

@@
expression sk;
@@
-read_lock(&sk->sk_callback_lock);
+read_lock_bh(&sk->sk_callback_lock);

@@
expression sk;
@@
-read_unlock(&sk->sk_callback_lock);
+read_unlock_bh(&sk->sk_callback_lock);
