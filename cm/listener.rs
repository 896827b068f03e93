// SPDX-License-Identifier: GPL-2.0

//! The CM ports of RDS, and the requests that come to them.
//!
//! A request says in its private data which addresses it connects, and so does the CM's own header before
//! that, which the RDMA CM of the peer writes. They have to be the same: a peer speaks for no one else.
//!
//! Over RoCE anyone who can send a UDP packet can write that header. But the request also names GIDs, which
//! are the addresses that our answers go to. So they have to be the same as well: who speaks for another
//! address gets no answer. A request that names the other one's GIDs, too, cannot be told from one of its own:
//! it ends the connection that there is.

use crate::conn::{ConnKey, Counter, NoConnection, Node, Transport};
use crate::ib_transport::{Ib, IncomingConnection};
use crate::kapi::{
    errno::Errno,
    net::Net,
    print::pr_warn_ratelimited,
    rdma::{IncomingRequest, Listener, RequestHandler},
    trace,
};
use crate::proto::ib_private::{
    negotiate, Addr, Private, PrivateError, Reject, Rejection, RoceGid, PORT_V4, PORT_V6,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use kernel::{fmt, prelude::*, sync::Arc};

/// Requests that may wait for their first look.
const BACKLOG: u16 = 128;

/// Why a request is refused.
enum Refusal {
    Private(PrivateError),
    Version(Reject),
    /// The addresses in the private data are not those in the CM's header.
    Addresses,
    /// The addresses in the CM's header are not those of the path: these are, ours first.
    Forged(Ipv6Addr, Ipv6Addr),
    Connection(NoConnection),
    /// It waits: nothing can be sent.
    Parked,
    /// Nothing can be sent, and it cannot wait.
    PathDown,
    /// Another request of the same peer waits.
    Busy,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private(error) => f.write_fmt(fmt!("bad private data: {:?}", error)),
            Self::Version(reject) => f.write_fmt(fmt!("no common version: {:?}", reject)),
            Self::Addresses => f.write_str("it speaks for other addresses than its own"),
            Self::Forged(local, remote) => {
                f.write_fmt(fmt!("its path is from {:?} to {:?}", remote, local))
            }
            Self::Connection(why) => f.write_fmt(fmt!("no connection: {}", why)),
            Self::Parked => f.write_str("its network device is not up yet, so it waits"),
            Self::PathDown => f.write_str("its network device is not up yet, and it cannot wait"),
            Self::Busy => f.write_str("another request of it waits"),
        }
    }
}

/// The IP address, IPv4 as a mapped one.
fn mapped(addr: SocketAddr) -> Ipv6Addr {
    match addr.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// What the listeners share.
pub(crate) struct Acceptor {
    node: Arc<Node>,
    transport: Arc<Ib>,
}

impl Acceptor {
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
            net: Net::init(),
            laddr,
            faddr,
            scope: if laddr.is_unicast_link_local() || faddr.is_unicast_link_local() {
                request.interface()
            } else {
                0
            },
            tos: private.tos,
        };
        if key.laddr.octets() != private.daddr.0 || key.faddr.octets() != private.saddr.0 {
            return Err(Refusal::Addresses);
        }
        Ok(key)
    }

    /// Hands a request to the connection that it is for.
    fn accept(&self, request: IncomingRequest) -> Result<(), Refusal> {
        if !request.path_is_up() {
            // Packets come in a moment before others go out.
            let waits = self.transport.park(request);
            return Err(if waits {
                Refusal::Parked
            } else {
                Refusal::PathDown
            });
        }
        let look = || {
            let private = if request.local_addr().is_ipv4() {
                Private::parse_v4(request.private_data())
            } else {
                Private::parse_v6(request.private_data())
            };
            let private = private.map_err(Refusal::Private)?;
            let agreed =
                negotiate(&private, self.transport.fragment()).map_err(Refusal::Version)?;
            let key = self.key(&request, &private)?;
            // Not by a look-up of the address: that makes CM ids, and this is a handler of one. A device
            // that is going has no pools any more.
            let (hold, pools) = request
                .device()
                .and_then(|device| {
                    let hold = self.transport.hold(&device)?;
                    Some((hold, self.transport.pools_of(&device)?))
                })
                .ok_or_else(|| Refusal::Connection(Error::from(Errno::NetUnreachable).into()))?;
            let connection = self
                .node
                .connection(key, None, || Ok(pools))
                .map_err(Refusal::Connection)?;
            Ok((agreed, private.credit, connection, hold))
        };
        let (agreed, credit, connection, hold) = match look() {
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
        let incoming =
            IncomingConnection::new(self.transport.clone(), request, agreed, credit, hold);
        let incoming =
            KBox::new(incoming, GFP_KERNEL).map_err(|_| Refusal::Connection(ENOMEM.into()))?;
        connection.request(incoming).map_err(|mut incoming| {
            incoming.reject(&connection);
            Refusal::Busy
        })
    }
}

impl RequestHandler for Acceptor {
    const REFUSAL: &'static [u8] = Rejection::Other.data();

    fn request(&self, request: IncomingRequest) {
        let (local, remote) = (request.local_addr(), request.remote_addr());
        match self.accept(request) {
            // The node has said so.
            Ok(()) | Err(Refusal::Connection(NoConnection::Full)) => {}
            Err(refusal) => {
                let counter = match refusal {
                    Refusal::Forged(..) => Counter::ConnRejectForged,
                    Refusal::Parked => Counter::ConnRequestParked,
                    _ => Counter::ConnRejectBadRequest,
                };
                self.node.stats.inc(counter);
                let conn = trace::Conn::new(mapped(local), mapped(remote), 0);
                trace::dropped(&conn, counter.name(), 1);
                pr_warn_ratelimited!("refused a connection from {:?}: {}\n", remote, refusal);
            }
        }
    }
}

/// Says why there is no listener, and what to do.
fn tell(port: u16, error: Error) {
    if error == Errno::AddressInUse.into() {
        pr_err!("CM port {port} is taken: unload C RDS (rmmod rds_rdma) or end what listens there (rdma resource show cm_id)\n");
    } else {
        pr_err!("cannot listen on CM port {port}: {error:?}\n");
    }
}

/// The listeners, IPv4 and IPv6. Dropping them sleeps; afterwards no request comes.
pub(crate) struct Listeners {
    _v4: Listener<Acceptor>,
    _v6: Option<Listener<Acceptor>>,
}

impl Listeners {
    /// Listens on all addresses. May sleep.
    pub(crate) fn new(node: &Arc<Node>, transport: &Arc<Ib>) -> Result<Self> {
        let acceptor = Arc::new(
            Acceptor {
                node: node.clone(),
                transport: transport.clone(),
            },
            GFP_KERNEL,
        )?;
        let listen = |addr: IpAddr, port| {
            Listener::new(&SocketAddr::new(addr, port), BACKLOG, acceptor.clone())
                .inspect_err(|error| tell(port, *error))
        };
        Ok(Self {
            _v4: listen(Ipv4Addr::UNSPECIFIED.into(), PORT_V4)?,
            // There may be no IPv6, or an iWARP device on which RDS over TCP has this port.
            _v6: listen(Ipv6Addr::UNSPECIFIED.into(), PORT_V6).ok(),
        })
    }
}
