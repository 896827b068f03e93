// SPDX-License-Identifier: GPL-2.0

//! `recvmsg(2)`: reads one message, or reports what has happened to operations and ports.
//!
//! # Operation
//!
//! A call first reports pending notifications of operations, then ports that have room again, both
//! without a message. Otherwise it copies the oldest message and its control messages. Without any
//! of these it waits, unless it must not. The reader that was woken wakes the next one.
//!
//! # Ownership
//!
//! A message in the queue owns the buffers in which it arrived. The reader takes it out, copies
//! without a spinlock, and drops it; that returns the buffers to their pool. A reader that peeks
//! puts it back, as does one whose copy fails.
//!
//! # Errors
//!
//! An error of a copy leaves the message, notification or ports for the next call. If a control
//! message has no room, the call sets `MSG_CTRUNC`. A notification that has no room waits for a
//! call that has.

use super::bind::sockaddr;
use crate::{
    kapi::{
        errno::Errno,
        net::{
            msg_flags,
            poll,
            Aligned,
            RecvMsg,
            Sock, //
        }, //
    },
    socket::{
        Incoming,
        Keep,
        MsgMeta,
        Socket, //
    },
    stats::Counter,
    uapi::{
        rdma::{
            notification,
            NOTIFICATION, //
        },
        RDS_CMSG_CONG_UPDATE,
        RDS_CMSG_RDMA_DEST,
        RDS_CMSG_RDMA_STATUS,
        RDS_CMSG_RXPATH_LATENCY,
        SOL_RDS, //
    }, //
};
use kernel::prelude::*;

/// Reads the oldest message, or pending notifications.
///
/// # Context
///
/// May sleep.
pub(super) fn recvmsg(sk: &Sock<Socket>, msg: RecvMsg<'_>) -> Result<usize> {
    let mut waited = false;
    let result = receive(sk, msg, &mut waited);
    // Only this reader was woken, so it wakes the next one.
    if waited && is_due(sk, true) {
        sk.wake_readers(poll::IN);
    }
    result
}

/// Returns `true` if something can be reported to a reader. `has_room` means that it has room for a
/// notification.
fn is_due(sk: &Sock<Socket>, has_room: bool) -> bool {
    sk.may_read()
        || sk.cong_notify.is_due()
        || sk.notify_queue.any_for(has_room)
        || sk.may_have_lost()
}

/// Implements [`recvmsg`]. Sets `waited` if it waited.
#[inline(always)]
fn receive(sk: &Sock<Socket>, mut msg: RecvMsg<'_>, waited: &mut bool) -> Result<usize> {
    let flags = msg.flags();
    if flags & msg_flags::OOB != 0 {
        return Ok(0);
    }
    if flags & msg_flags::ERRQUEUE != 0 {
        // RDS never queues errors there.
        return Err(EAGAIN);
    }
    let keep = if flags & msg_flags::PEEK != 0 {
        Keep::Yes
    } else {
        Keep::No
    };
    let mut timeout = sk.recv_timeout(flags & msg_flags::DONTWAIT != 0);
    loop {
        if sk.may_have_lost() {
            sk.take_loss()?;
        }
        if sk.notify_queue.any() && put_notifications(sk, &mut msg, keep)? {
            return Ok(0);
        }
        if sk.cong_notify.ports() != 0 && put_cong_notification(sk, &mut msg, keep)? {
            return Ok(0);
        }
        let read = sk.read_message(keep, |message| read(sk, message, &mut msg, keep))?;
        if let Some(returned) = read {
            return Ok(returned);
        }
        // The program now knows that there is nothing to read, which clears reported congestion.
        sk.cong_notify.ack_reported();
        // The ports wait for a call with room for them. This call is notified of their existence,
        // once.
        if sk.cong_notify.is_due()
            && !msg.has_control_room(size_of::<u64>())
            && sk.cong_notify.report_short()
        {
            msg.add_flags(msg_flags::CTRUNC);
            return Ok(0);
        }
        let has_room_for_end = msg.has_control_room(NOTIFICATION);
        if sk.notify_queue.any_for(has_room_for_end) {
            if has_room_for_end {
                // The notification has just arrived.
                continue;
            }
            // Otherwise a program that requested notifications but never has room would never wait.
            if keep == Keep::Yes || sk.notify_queue.miss() {
                msg.add_flags(msg_flags::CTRUNC);
                return Ok(0);
            }
        }
        if timeout.is_nonblocking() {
            return Err(EAGAIN);
        }
        *waited = true;
        let has_room = msg.has_control_room(size_of::<u64>());
        let may_report = || has_room && sk.cong_notify.ports() != 0;
        let is_due = || is_due(sk, has_room_for_end) || may_report();
        if !sk.wait_to_read(&mut timeout, is_due)? {
            return Err(Errno::TimedOut.into());
        }
    }
}

/// Reports as many notifications of operations as there is room for, in control messages without a
/// message. Returns `true` if there was room for one.
#[cold]
fn put_notifications(sk: &Sock<Socket>, msg: &mut RecvMsg<'_>, keep: Keep) -> Result<bool> {
    let mut any_put = false;
    while msg.has_control_room(NOTIFICATION) {
        let Some(first) = sk.notify_queue.take() else {
            break;
        };
        let data = Aligned(notification(first.token, first.status));
        let result = msg.put_control(SOL_RDS, RDS_CMSG_RDMA_STATUS, &data);
        if result.is_err() || keep == Keep::Yes {
            sk.notify_queue.put_back(first);
            // Another reader may have found the queue empty meanwhile.
            sk.wake_readers(poll::IN);
            return result
                .map(|()| true)
                .or_else(|error| any_put.then_some(true).ok_or(error));
        }
        any_put = true;
    }
    Ok(any_put)
}

/// Reports the ports that may have room again, in a control message without a message. Returns
/// `false` if there is no room; the ports then wait for another call.
#[cold]
fn put_cong_notification(sk: &Sock<Socket>, msg: &mut RecvMsg<'_>, keep: Keep) -> Result<bool> {
    if !msg.has_control_room(size_of::<u64>()) {
        return Ok(false);
    }
    let put = |ports: u64, msg: &mut RecvMsg<'_>| {
        let data = Aligned(ports.to_ne_bytes());
        msg.put_control(SOL_RDS, RDS_CMSG_CONG_UPDATE, &data)
    };
    if keep == Keep::Yes {
        let ports = sk.cong_notify.ports();
        return match ports {
            0 => Ok(false),
            ports => put(ports, msg).map(|()| true),
        };
    }
    let ports = sk.cong_notify.take_ports();
    if ports == 0 {
        return Ok(false);
    }
    let result = put(ports, msg);
    if result.is_err() {
        sk.cong_notify.add(ports);
        // Another reader may have found no ports meanwhile.
        sk.wake_readers(poll::IN | poll::WRBAND);
    }
    result.map(|()| true)
}

/// Copies a message to the reader. Returns the result of `recvmsg(2)`.
fn read(sk: &Sock<Socket>, message: &Incoming, msg: &mut RecvMsg<'_>, keep: Keep) -> Result<usize> {
    let flags = msg.flags();
    let copied = message.copy_to(msg)?;
    if let Some(meta) = &message.meta {
        put_meta(sk, meta, msg)?;
    }
    let len = message.len as usize;
    msg.set_name(&sockaddr(message.saddr, message.sport, message.scope));
    let stats = &sk.node.stats;
    match keep {
        Keep::No => stats.count(Counter::RecvDelivered, Counter::CopyToUser, copied),
        Keep::Yes => stats.add(Counter::CopyToUser, copied),
    }
    if copied < len {
        msg.add_flags(msg_flags::TRUNC);
    }
    Ok(if flags & msg_flags::TRUNC != 0 {
        len
    } else {
        copied
    })
}

/// Writes the control messages of a message: its RDMA cookie, and its timestamps if requested.
///
/// # Errors
///
/// - `EFAULT` if the control buffer cannot be written.
#[cold]
fn put_meta(sk: &Sock<Socket>, meta: &MsgMeta, msg: &mut RecvMsg<'_>) -> Result {
    if let Some(cookie) = meta.extras.memory {
        let data = Aligned(cookie.to_bits().to_ne_bytes());
        msg.put_control(SOL_RDS, RDS_CMSG_RDMA_DEST, &data)?;
    }
    let Some(stamps) = &meta.stamps else {
        return Ok(());
    };
    sk.put_timestamp(msg, stamps.at)?;
    let traces = sk.control.lock().traces;
    if traces.is_empty() {
        return Ok(());
    }
    msg.put_control(
        SOL_RDS,
        RDS_CMSG_RXPATH_LATENCY,
        &Aligned(traces.answer(stamps)),
    )
}
