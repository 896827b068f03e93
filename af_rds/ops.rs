// SPDX-License-Identifier: GPL-2.0

//! Operations of `struct proto_ops` for RDS sockets.

use super::{
    bind,
    opts,
    recvmsg,
    sendmsg, //
};
use crate::{
    conn::{
        Nodes,
        RetryTimers, //
    },
    kapi::{
        errno::Errno,
        net::{
            poll,
            Net,
            PollMask,
            Protocol,
            RecvMsg,
            SendMsg,
            Sock,
            SockAddr,
            SockOptIn,
            SockOptOut,
            SOCK_SEQPACKET, //
        }, //
    },
    socket::{
        Bound,
        CachedRoute,
        Socket,
        Traces, //
    },
    uapi::AF_RDS, //
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

impl Protocol for Socket {
    const FAMILY: c_int = AF_RDS;
    const NAME: &'static [u8] = b"RDS";
    type Bound = Bound;
    type Context = Arc<dyn Nodes>;

    fn create(
        nodes: &Arc<dyn Nodes>,
        net: Net,
        kind: c_int,
        protocol: c_int,
    ) -> Result<impl PinInit<Self>> {
        // The only type of an RDS socket.
        if kind != SOCK_SEQPACKET || protocol != 0 {
            return Err(Errno::SocketTypeNotSupported.into());
        }
        let node = nodes.of(net)?;
        let creator = node.shared.accounts.of_caller()?;
        Ok(Socket::new(node, net, creator))
    }

    fn release(sk: &Sock<Self>) {
        // First. Otherwise a sender that has cached this socket would not find the next one that is
        // bound here.
        sk.begin_close();
        // Before the port is free, because from then on its next owner decides about its
        // congestion.
        sk.close_receive();
        if let Some(bound) = sk.bound() {
            sk.node.shared.binds.unbind(sk, bound);
        }
        sk.set_traces(Traces::NONE);
        sk.stop_waiting();
        sk.node.retry_timers.remove(sk);
        sk.memory.close();
        // The cached route may hold this socket, so it is taken out to break the reference cycle.
        let last = sk.control.lock().last.take();
        if let Some(bound) = sk.bound().filter(|_| sk.has_unacknowledged()) {
            let likely = match &last {
                Some(CachedRoute::Connection(connection)) => Some(connection),
                _ => None,
            };
            sk.node.cancel_sends(sk, bound, likely);
        }
        drop(last);
        if let Some(bound) = sk.bound().filter(|_| !sk.net.is_init()) {
            sk.node.end_use(bound.transport);
        }
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
            // As with C RDS, also for an address that is valid on all links.
            let scope = match peer.scope {
                0 => sk.bound().map_or(0, |bound| bound.scope),
                scope => scope,
            };
            return Ok(Some(bind::sockaddr(peer.addr, peer.port, scope)));
        }
        let Some(bound) = sk.bound() else {
            // As with C RDS: the family of the peer, without an address.
            return Ok(connected.map(|peer| match peer.addr.to_ipv4_mapped() {
                Some(_) => bind::sockaddr(core::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 0, 0),
                None => bind::sockaddr(Ipv6Addr::UNSPECIFIED, 0, 0),
            }));
        };
        let scope = match bound.scope {
            0 => connected.map_or(0, |peer| peer.scope),
            scope => scope,
        };
        Ok(Some(bind::sockaddr(bound.addr, bound.port, scope)))
    }

    fn poll(sk: &Sock<Self>) -> PollMask {
        let mut mask = PollMask::default();
        // `poll(2)` knows of no room for control messages, so only requested notifications count.
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
        if sk.is_writable() && !RetryTimers::has(sk) && sk.may_use_share() {
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
