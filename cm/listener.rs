// SPDX-License-Identifier: GPL-2.0

//! CM listeners of RDS, and the connection requests that arrive at them.
//!
//! A request names the addresses it connects twice: in its private data, and in the CM header
//! before it, which the peer's RDMA CM writes. Both have to match, so a program cannot request a
//! connection for another address.
//!
//! Over RoCE any sender of UDP packets can forge the CM header. But the request also names GIDs,
//! and the answers of this node go to the addresses in them. So the GIDs have to match as well: a
//! sender that claims another address gets no answer. A request that also forges the GIDs looks
//! like one of the true owner: it ends the existing connection.

use crate::{
    conn::{
        ConnKey,
        NoConnection,
        Node,
        Request,
        Transport, //
    },
    kapi::{
        errno::Errno,
        print::pr_warn_ratelimited,
        rdma::{
            IbDevice,
            IncomingRequest,
            Listener,
            RequestHandler, //
        }, //
    },
    proto::ib_private::{
        negotiate,
        Addr,
        Agreed,
        Private,
        PrivateError,
        Reject,
        Rejection,
        RoceGid,
        PORT_V4,
        PORT_V6, //
    },
    recv_pool::Pools,
    stats::Counter,
    trace, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr,
    SocketAddr, //
};
use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

/// Backlog of each listener: requests that wait for their handler.
const BACKLOG: u16 = 128;

/// A transport that takes the requests of peers.
pub(crate) trait RequestSink: Transport + Sized + 'static {
    /// A reference that makes the removal of a device wait.
    type Hold;

    /// Makes the removal of a device wait, and returns its pools. Returns `None` if the transport
    /// does not use the device, or it is being removed.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    fn hold(&self, device: &IbDevice) -> Option<(Self::Hold, Arc<Pools>)>;

    /// Defers the rejection of a request until its network device is up. Returns `false` if it is
    /// rejected at once.
    ///
    /// # Context
    ///
    /// May sleep.
    fn park(this: &Arc<Self>, request: IncomingRequest) -> bool;

    /// Wraps a valid request for its connection. `agreed` is the content of the reply, `credit` the
    /// number of receives that the peer offers, and `hold` keeps the device of the request.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    fn incoming(
        this: &Arc<Self>,
        request: IncomingRequest,
        agreed: Agreed,
        credit: u32,
        hold: Self::Hold,
    ) -> Result<KBox<dyn Request>>;
}

/// Reasons to refuse a request.
enum Refusal {
    Private(PrivateError),
    Version(Reject),
    /// The addresses in the private data differ from those in the CM header.
    Addresses,
    /// The addresses in the CM header differ from those of the path. The fields are the addresses
    /// of the path, the local one first.
    Forged(Ipv6Addr, Ipv6Addr),
    Connection(NoConnection),
    /// The request is parked: its path cannot send yet.
    Parked,
    /// The path cannot send yet, and the request cannot be parked.
    PathDown,
    /// Another request of the same peer waits.
    Busy,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private(error) => f.write_fmt(fmt!("bad private data: {:?}", error)),
            Self::Version(reject) => f.write_fmt(fmt!("no common version: {:?}", reject)),
            Self::Addresses => {
                f.write_str("its private data has other addresses than its CM header")
            }
            Self::Forged(local, remote) => {
                f.write_fmt(fmt!("its path is from {:?} to {:?}", remote, local))
            }
            Self::Connection(why) => f.write_fmt(fmt!("no connection: {}", why)),
            Self::Parked => f.write_str("its network device is not up yet: the request waits"),
            Self::PathDown => {
                f.write_str("its network device is not up yet, and the request cannot wait")
            }
            Self::Busy => f.write_str("another request of this peer waits"),
        }
    }
}

/// Returns the IP address, IPv4 as an IPv4-mapped one.
fn mapped(addr: SocketAddr) -> Ipv6Addr {
    match addr.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// State that the listeners share.
pub(crate) struct Acceptor<T> {
    node: Arc<Node>,
    transport: Arc<T>,
}

impl<T: RequestSink> Acceptor<T> {
    fn key(&self, request: &IncomingRequest, private: &Private) -> Result<ConnKey, Refusal> {
        let laddr = mapped(request.local_addr());
        let faddr = mapped(request.remote_addr());
        if let Some((local, remote)) = request.named_gids() {
            let may_have = |named, addr: Ipv6Addr| RoceGid(named).may_have(Addr(addr.octets()));
            if !may_have(local, laddr) || !may_have(remote, faddr) {
                return Err(Refusal::Forged(local.into(), remote.into()));
            }
        }
        let key = ConnKey {
            net: self.node.net.id(),
            laddr,
            faddr,
            scope: if laddr.is_unicast_link_local() || faddr.is_unicast_link_local() {
                request.interface()
            } else {
                0
            },
            tos: private.tos,
            transport: self.transport.id(),
            path: 0,
        };
        if key.laddr.octets() != private.daddr.0 || key.faddr.octets() != private.saddr.0 {
            return Err(Refusal::Addresses);
        }
        Ok(key)
    }

    /// Passes a request to its connection, which it creates if needed.
    fn accept(&self, request: IncomingRequest) -> Result<(), Refusal> {
        if !request.path_is_up() {
            // When a link comes up, packets arrive shortly before others can be sent.
            let waits = T::park(&self.transport, request);
            return Err(if waits {
                Refusal::Parked
            } else {
                Refusal::PathDown
            });
        }
        let check = || {
            let private = if request.local_addr().is_ipv4() {
                Private::parse_v4(request.private_data())
            } else {
                Private::parse_v6(request.private_data())
            };
            let private = private.map_err(Refusal::Private)?;
            let agreed =
                negotiate(&private, self.transport.fragment()).map_err(Refusal::Version)?;
            let key = self.key(&request, &private)?;
            // The device is taken from the request. A lookup of the address would create CM ids,
            // and this is a CM handler. A device that is being removed has no pools.
            let (hold, pools) = request
                .device()
                .and_then(|device| self.transport.hold(&device))
                .ok_or_else(|| Refusal::Connection(Error::from(Errno::NetUnreachable).into()))?;
            let connection = self
                .node
                .connection(key, None, || Ok(pools))
                .map_err(Refusal::Connection)?;
            Ok((agreed, private.credit, connection, hold))
        };
        let (agreed, credit, connection, hold) = match check() {
            Ok(found) => found,
            Err(refusal) => {
                let why = match &refusal {
                    Refusal::Version(_) | Refusal::Private(_) => Rejection::Version,
                    _ => Rejection::Other,
                };
                request.reject(why.data());
                return Err(refusal);
            }
        };
        let incoming = T::incoming(&self.transport, request, agreed, credit, hold)
            .map_err(|error| Refusal::Connection(error.into()))?;
        connection.request(incoming).map_err(|mut incoming| {
            incoming.reject(&connection);
            Refusal::Busy
        })
    }
}

impl<T: RequestSink> RequestHandler for Acceptor<T> {
    const REFUSAL: &'static [u8] = Rejection::Other.data();

    fn request(&self, request: IncomingRequest) {
        let (local, remote) = (request.local_addr(), request.remote_addr());
        match self.accept(request) {
            // The node has already logged this.
            Ok(()) | Err(Refusal::Connection(NoConnection::Full)) => {}
            Err(refusal) => {
                let counter = match refusal {
                    Refusal::Forged(..) => Counter::ConnRejectForged,
                    Refusal::Parked => Counter::ConnRequestParked,
                    _ => Counter::ConnRejectBadRequest,
                };
                self.node.stats.inc(counter);
                let conn = trace::Conn::new(mapped(local), mapped(remote), 0);
                trace::dropped(&conn, counter, 1);
                pr_warn_ratelimited!("refused a connection from {:?}: {}\n", remote, refusal);
            }
        }
    }
}

/// Logs why a listener cannot be created, with a remedy.
fn log_listen_error(port: u16, error: Error) {
    if error == Errno::AddressInUse.into() {
        pr_err!("CM port {port} is in use: unload C RDS (rmmod rds_rdma), or end the listener (rdma resource show cm_id)\n");
    } else {
        pr_err!("cannot listen on CM port {port}: {error:?}\n");
    }
}

/// The IPv4 and IPv6 listeners. Dropping them sleeps. No requests arrive afterwards.
pub(crate) struct Listeners<T: RequestSink> {
    _v4: Listener<Acceptor<T>>,
    _v6: Option<Listener<Acceptor<T>>>,
}

impl<T: RequestSink> Listeners<T> {
    /// Listens on all addresses.
    ///
    /// # Context
    ///
    /// Process context. May sleep.
    pub(crate) fn new(node: &Arc<Node>, transport: &Arc<T>) -> Result<Self> {
        let acceptor = Arc::new(
            Acceptor {
                node: node.clone(),
                transport: transport.clone(),
            },
            GFP_KERNEL,
        )?;
        let listen = |addr: IpAddr, port| {
            let addr = SocketAddr::new(addr, port);
            Listener::new(&node.net, &addr, BACKLOG, acceptor.clone()).inspect_err(|error| {
                // In another namespace that may fail again and again, so the caller logs it.
                if node.net.id().is_init() {
                    log_listen_error(port, *error);
                }
                let conn = trace::Conn::local(mapped(addr));
                trace::error(&conn, "listen", error.to_errno());
            })
        };
        Ok(Self {
            _v4: listen(Ipv4Addr::UNSPECIFIED.into(), PORT_V4)?,
            // IPv6 is optional: it may be disabled, or RDS over TCP may use this port of an iWARP
            // device.
            _v6: listen(Ipv6Addr::UNSPECIFIED.into(), PORT_V6).ok(),
        })
    }
}
