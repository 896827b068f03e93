// SPDX-License-Identifier: GPL-2.0

//! `recvmsg(2)`.

use super::ops::sockaddr;
use crate::conn::Counter;
use crate::kapi::{
    errno::Errno,
    net::{msg_flags, RecvMsg, Sock},
};
use crate::msg::{Incoming, Keep, Socket};
use kernel::prelude::*;

/// Reads one message, the oldest. May sleep.
pub(super) fn recvmsg(sk: &Sock<Socket>, mut msg: RecvMsg<'_>) -> Result<usize> {
    let flags = msg.flags();
    if flags & msg_flags::OOB != 0 {
        return Ok(0);
    }
    if flags & msg_flags::ERRQUEUE != 0 {
        // Nothing of ours is ever put there.
        return Err(EAGAIN);
    }
    let keep = if flags & msg_flags::PEEK != 0 {
        Keep::Yes
    } else {
        Keep::No
    };
    let mut timeout = sk.recv_timeout(flags & msg_flags::DONTWAIT != 0);
    loop {
        let read = sk.read_message(keep, |message| read(sk, message, &mut msg, keep))?;
        if let Some(returned) = read {
            return Ok(returned);
        }
        if timeout.is_nonblocking() {
            return Err(EAGAIN);
        }
        if !sk.wait(&mut timeout, || sk.is_readable())? {
            return Err(Errno::TimedOut.into());
        }
    }
}

/// Copies a message to the reader. Returns what the call returns.
fn read(sk: &Sock<Socket>, message: &Incoming, msg: &mut RecvMsg<'_>, keep: Keep) -> Result<usize> {
    let flags = msg.flags();
    let copied = message.copy_to(msg)?;
    let len = message.len as usize;
    let scope = sk.bound().map_or(0, |bound| bound.scope);
    msg.set_name(&sockaddr(message.saddr, message.sport, scope));
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
