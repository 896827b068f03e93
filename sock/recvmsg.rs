// SPDX-License-Identifier: GPL-2.0

//! `recvmsg(2)`.

use super::ops::sockaddr;
use crate::conn::Counter;
use crate::kapi::{
    errno::Errno,
    net::{msg_flags, RecvMsg, Sock},
};
use crate::msg::Socket;
use kernel::prelude::*;

/// Reads one message, the oldest. May sleep.
pub(super) fn recvmsg(sk: &Sock<Socket>, mut msg: RecvMsg<'_>) -> Result<usize> {
    let flags = msg.flags();
    if flags & msg_flags::OOB != 0 {
        return Ok(0);
    }
    let mut timeout = sk.recv_timeout(flags & msg_flags::DONTWAIT != 0);
    let message = loop {
        if let Some(message) = sk.take_message() {
            break message;
        }
        if timeout.is_nonblocking() {
            return Err(EAGAIN);
        }
        if !sk.wait(&mut timeout, || sk.is_readable())? {
            return Err(Errno::TimedOut.into());
        }
    };

    let copied = match message.copy_to(&mut msg) {
        Ok(copied) => copied,
        Err(error) => {
            // It was not read, so it is not lost.
            sk.put_back(message);
            return Err(error);
        }
    };
    let len = message.len as usize;
    let scope = sk.bound.as_ref().map_or(0, |bound| bound.scope);
    msg.set_name(&sockaddr(message.saddr, message.sport, scope));
    let stats = &sk.node.stats;
    stats.inc(Counter::RecvDelivered);
    stats.add(Counter::CopyToUser, copied);
    if flags & msg_flags::PEEK != 0 {
        sk.put_back(message);
    } else {
        stats.add(Counter::RecvBytesFreed, message.cost());
    }
    if copied == len {
        return Ok(len);
    }
    msg.add_flags(msg_flags::TRUNC);
    Ok(if flags & msg_flags::TRUNC != 0 {
        len
    } else {
        copied
    })
}
