// SPDX-License-Identifier: GPL-2.0

//! The calls of `proto_ops`.

use super::{bind, opts, recvmsg, sendmsg};
use crate::conn::{Node, Turns};
use crate::kapi::{
    errno::Errno,
    net::{poll, Net, PollMask, Protocol, RecvMsg, SendMsg, Sock, SockAddr, SockOptIn, SockOptOut},
};
use crate::msg::{Bound, CachedRoute, Socket, Traces};
use core::net::Ipv6Addr;
use kernel::{prelude::*, sync::Arc};

/// `SOCK_SEQPACKET`, the only type of an RDS socket.
const SOCK_SEQPACKET: c_int = 5;

impl Protocol for Socket {
    const FAMILY: c_int = 21;
    const NAME: &'static [u8] = b"RDS";
    type Bound = Bound;
    type Context = Arc<Node>;

    fn create(
        node: &Arc<Node>,
        net: Net,
        kind: c_int,
        protocol: c_int,
    ) -> Result<impl PinInit<Self>> {
        if kind != SOCK_SEQPACKET || protocol != 0 {
            return Err(Errno::SocketTypeNotSupported.into());
        }
        let maker = node.accounts.of_caller()?;
        Ok(Socket::new(node.clone(), net, maker))
    }

    fn release(sk: &Sock<Self>) {
        // First, or a sender that knows this socket would miss the next one that is bound here.
        sk.begin_close();
        // Before the port is free: whether it is congested is for its next owner to say.
        sk.close_receive();
        if let Some(bound) = sk.bound() {
            sk.node.binds.unbind(sk, bound);
        }
        sk.set_traces(Traces::NONE);
        sk.stop_waiting();
        sk.node.turns.remove(sk);
        sk.memory.close();
        // What is there may hold this socket: break the circle.
        let last = sk.control.lock().last.take();
        if let Some(bound) = sk.bound().filter(|_| sk.has_unacknowledged()) {
            let likely = match &last {
                Some(CachedRoute::Connection(connection)) => Some(connection),
                _ => None,
            };
            sk.node.cancel_sends(sk, bound, likely);
        }
        drop(last);
    }

    #[inline]
    fn bind(sk: &Sock<Self>, addr: &[u8]) -> Result {
        bind::bind(sk, addr)
    }

    fn connect(sk: &Sock<Self>, addr: &[u8]) -> Result {
        let peer = bind::parse_peer(sk, addr, bind::Call::Connect)?;
        sk.control.lock().peer = Some(peer);
        Ok(())
    }

    fn name(sk: &Sock<Self>, peer: bool) -> Result<Option<SockAddr>> {
        let connected = sk.control.lock().peer;
        if peer {
            let peer = connected.ok_or(Errno::NotConnected)?;
            // As with C, also for an address that is valid everywhere.
            let scope = match peer.scope {
                0 => sk.bound().map_or(0, |bound| bound.scope),
                scope => scope,
            };
            return Ok(Some(sockaddr(peer.addr, peer.port, scope)));
        }
        let Some(bound) = sk.bound() else {
            // As C does: the family of the peer, with no address.
            return Ok(connected.map(|peer| match peer.addr.to_ipv4_mapped() {
                Some(_) => sockaddr(core::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 0, 0),
                None => sockaddr(Ipv6Addr::UNSPECIFIED, 0, 0),
            }));
        };
        let scope = match bound.scope {
            0 => connected.map_or(0, |peer| peer.scope),
            scope => scope,
        };
        Ok(Some(sockaddr(bound.addr, bound.port, scope)))
    }

    fn poll(sk: &Sock<Self>) -> PollMask {
        let mut mask = PollMask::default();
        // Whoever asks has no room yet.
        if sk.may_read() || sk.notify_queue.any_for(false) {
            mask |= poll::IN;
        }
        if sk.cong_notify.is_monitor() {
            if sk.cong_notify.is_due() {
                mask |= poll::IN;
            }
        } else if sk.cong_notify.report_any() {
            mask |= poll::IN | poll::WRBAND;
        }
        if sk.is_writable() && !Turns::has(sk) && sk.may_use_share() {
            mask |= poll::OUT;
        }
        if sk.has_error() {
            mask |= poll::ERR;
        }
        mask
    }

    fn ioctl(sk: &Sock<Self>, cmd: c_uint, arg: usize) -> Result<c_int> {
        opts::ioctl(sk, cmd, arg)
    }

    fn setsockopt(sk: &Sock<Self>, level: c_int, name: c_int, value: SockOptIn<'_>) -> Result {
        opts::set(sk, level, name, &value)
    }

    fn getsockopt(
        sk: &Sock<Self>,
        level: c_int,
        name: c_int,
        value: SockOptOut<'_>,
    ) -> Result<c_int> {
        opts::get(sk, level, name, value)
    }

    fn sendmsg(sk: &Sock<Self>, msg: SendMsg<'_>) -> Result<usize> {
        sendmsg::sendmsg(sk, msg)
    }

    fn recvmsg(sk: &Sock<Self>, msg: RecvMsg<'_>) -> Result<usize> {
        recvmsg::recvmsg(sk, msg)
    }
}

/// The address as programs see it: IPv4 where it is a mapped one.
pub(super) fn sockaddr(addr: Ipv6Addr, port: u16, scope: u32) -> SockAddr {
    match addr.to_ipv4_mapped() {
        Some(addr) => SockAddr::V4 { addr, port },
        None => SockAddr::V6 { addr, port, scope },
    }
}
