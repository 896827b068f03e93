// SPDX-License-Identifier: GPL-2.0

//! The loop transport, which delivers messages between sockets of this node: those of loopback
//! addresses, and those that send to their own address.
//!
//! A message goes straight to the queue of the destination socket. It stays charged to the sender
//! until it is read, and a congested receiver stops its senders. So the buffers of the sockets
//! involved bound the memory in use.

#![deny(unsafe_code)]

use crate::{
    conn::Transport,
    kapi::net::{
        IpBits,
        Net,
        SendMsg,
        Sock, //
    },
    proto::{
        rdma::{
            Cookie,
            RdmaExthdrs, //
        },
        wire::PING_PORT, //
    },
    socket::{
        BindKey,
        Bound,
        Incoming,
        Payload,
        Peer,
        SndbufCharge,
        Socket,
        TransportId,
        WaitingOn,
        CHUNK,
        INLINE, //
    },
    stats::Counter,
    trace::{
        self,
        TracedMsg, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    sync::aref::ARef, //
};

/// The loop transport. It has no connections: a socket that sends looks up its [`Destination`].
pub(crate) struct Loop;

impl Transport for Loop {
    fn id(&self) -> TransportId {
        TransportId::Loop
    }

    /// Claims the loopback addresses of any namespace.
    fn claims(&self, _: Net, addr: IpBits, _: u32) -> Result<bool> {
        Ok(addr.is_loopback())
    }
}

/// Destination of a message on this node.
pub(crate) enum Destination {
    /// A bound socket.
    Socket(ARef<Sock<Socket>>),
    /// The node itself. It answers a ping from the address that was pinged.
    Ping(Ipv6Addr),
    /// A port that no socket has. The message is dropped, because RDS cannot notify its sender.
    NoSocket(Ipv6Addr),
}

impl Destination {
    /// Looks the destination up.
    pub(crate) fn new(sk: &Sock<Socket>, peer: &Peer) -> Self {
        if peer.port == PING_PORT {
            return match sk.node.tunables.answers_pings() {
                true => Self::Ping(peer.addr),
                false => Self::NoSocket(peer.addr),
            };
        }
        let key = BindKey {
            addr: IpBits::new(peer.addr),
            port: peer.port,
            scope: peer.scope,
        };
        sk.node
            .shared
            .binds
            .lookup(sk.net, &key)
            .map_or(Self::NoSocket(peer.addr), Self::Socket)
    }

    /// Returns `true` if the destination is congested.
    pub(crate) fn is_congested(&self) -> bool {
        match self {
            Self::Socket(target) => target.is_congested() && !target.is_closed(),
            Self::Ping(_) | Self::NoSocket(_) => false,
        }
    }

    /// Returns the socket in whose receive buffer a sender needs room.
    pub(crate) fn waiting_on(&self) -> Option<WaitingOn> {
        match self {
            Self::Socket(target) => Some(WaitingOn::Socket(target.clone())),
            Self::Ping(_) | Self::NoSocket(_) => None,
        }
    }

    /// Returns the form of a message from `laddr` that tracepoints use. `None` if no socket has the
    /// port: the drop is traced then.
    #[cold]
    fn traced(&self, message: &Incoming, laddr: Ipv6Addr) -> Option<TracedMsg> {
        let (faddr, dport) = match self {
            Self::Socket(target) => target.bound().map(|it| (it.addr, it.port))?,
            Self::Ping(addr) => (*addr, PING_PORT),
            Self::NoSocket(_) => return None,
        };
        Some(TracedMsg {
            conn: trace::Conn::new(laddr, faddr, message.tos),
            transport: TransportId::Loop as u8,
            sport: message.sport,
            dport,
            bytes: message.len,
            sequence: 0,
        })
    }

    /// Sends a message of `len` bytes.
    ///
    /// # Errors
    ///
    /// - `EFAULT` if the program's memory cannot be read.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn send(
        self,
        sk: &Sock<Socket>,
        bound: &Bound,
        msg: &mut SendMsg<'_>,
        len: u32,
        cookie: Option<Cookie>,
        charge: SndbufCharge,
    ) -> Result {
        let meta = sk.node.begin_stamps();
        let (addr, port, scope) = (bound.addr, bound.port, bound.scope);
        let mut incoming = Incoming::new(addr, port, len, scope, meta, GFP_KERNEL)?;
        incoming.tos = sk.tos_over(bound.transport);
        if let Some(cookie) = cookie {
            let extras = RdmaExthdrs {
                memory: Some(cookie),
                used: None,
            };
            incoming.set_extras(extras, GFP_KERNEL_ACCOUNT)?;
        }
        copy_payload(msg, len as usize, &mut incoming)?;
        let stats = &sk.node.stats;
        stats.count(Counter::SendQueued, Counter::CopyFromUser, len as usize);
        trace::msg_queued(|| self.traced(&incoming, addr));
        match self {
            Self::Socket(target) => {
                incoming.charge = Some(charge);
                target.deliver(incoming);
            }
            Self::Ping(asked) => {
                stats.inc(Counter::RecvPing);
                stats.inc(Counter::SendPong);
                // The pong is the same message with port 0 and no payload.
                incoming.saddr = asked;
                incoming.sport = PING_PORT;
                incoming.len = 0;
                incoming.payload = Payload::Inline;
                incoming.inline.set(&[]);
                incoming.charge = Some(charge);
                sk.deliver(incoming);
            }
            Self::NoSocket(asked) => drop_without_socket(sk, bound, asked),
        }
        Ok(())
    }
}

/// Counts and traces a message for a port of `addr` that no socket has. The trace shows the
/// receiver as the near end, as for a connection.
#[cold]
fn drop_without_socket(sk: &Sock<Socket>, bound: &Bound, addr: Ipv6Addr) {
    let reason = Counter::RecvDropNoSock;
    sk.node.stats.inc(reason);
    let ends = trace::Conn::new(addr, bound.addr, sk.tos_over(bound.transport));
    trace::dropped(&ends, reason, 1);
}

/// Copies the payload from the sending program.
///
/// # Errors
///
/// - `EFAULT` if the program's memory cannot be read.
/// - `ENOMEM`
///
/// # Context
///
/// May sleep.
fn copy_payload(msg: &mut SendMsg<'_>, len: usize, incoming: &mut Incoming) -> Result {
    if len <= INLINE {
        return msg.copy_to_inline(&mut incoming.inline, len);
    }
    if len <= CHUNK {
        let mut chunk = KVVec::new();
        msg.copy_to_vec(&mut chunk, len)?;
        incoming.payload = Payload::Chunk(chunk);
        return Ok(());
    }
    let mut chunks = KVec::with_capacity(len.div_ceil(CHUNK), GFP_KERNEL_ACCOUNT)?;
    let mut left = len;
    while left > 0 {
        let part = left.min(CHUNK);
        let mut chunk = KVVec::new();
        msg.copy_to_vec(&mut chunk, part)?;
        chunks.push(chunk, GFP_KERNEL_ACCOUNT)?;
        left = left.saturating_sub(part);
    }
    incoming.payload = Payload::Chunks(chunks);
    Ok(())
}
