// SPDX-License-Identifier: GPL-2.0

//! Connections that peers make.
//!
//! Anybody can connect. So an accepted socket of a peer with a lower address waits here until its
//! first header has arrived, and only then a connection is created for it. The number of those that
//! wait is limited, and so is their time. A socket of a peer with a higher address only wakes this
//! node up, which creates a connection and connects to the peer.

use super::{
    counters::TcpCounter,
    endpoint::{
        IncomingStream,
        TcpEndpoint, //
    },
    tcp::Tcp, //
};
use crate::{
    conn::{
        ConnKey,
        Connection,
        NoConnection,
        Node,
        Request,
        ShownAddr,
        Transport, //
    },
    kapi::{
        net::{
            locality,
            tcp::{
                TcpEvent,
                TcpEvents,
                TcpRead,
                TcpSocket, //
            },
            Locality,
            Net, //
        },
        print::pr_info_ratelimited,
        sync::{
            cancel,
            cancel_delayed, //
        },
        task::without_io,
        time, //
    },
    proto::{
        tcp_role::{
            self,
            Purpose, //
        },
        tcp_stream,
        wire::Header, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

/// Connections that TCP keeps until they are accepted, as on C RDS.
const BACKLOG: c_int = 64;

/// Number of accepted sockets without a connection.
const EMBRYOS: usize = 64;

/// Number of those that one peer may have.
const OF_PEER: usize = 8;

/// Number of those with messages that wait for room for a connection. The others are for peers that
/// have one.
const PARKED: usize = EMBRYOS / 2;

/// Sockets that one run of the work accepts.
const BUDGET: usize = 64;

/// Time in nanoseconds within which the first header has to arrive.
const TIMEOUT_NS: u64 = 5_000_000_000;

/// Time in milliseconds between two checks for that.
const CHECK_MS: u32 = 100;

/// An accepted socket without a connection.
struct Embryo {
    /// `None` once the connection has it.
    socket: Option<TcpSocket>,
    key: ConnKey,
    since: u64,
    /// Its first header has arrived.
    is_valid: bool,
    /// Bytes from the peer that hold no message, and so may be lost.
    may_lose: u32,
}

impl Embryo {
    /// Looks for the first header. Returns `None` if it is there or may still come, and otherwise
    /// the counter of the reason. May sleep.
    fn look(&mut self) -> Option<TcpCounter> {
        let mut header = [0; Header::LEN];
        let socket = self.socket.as_ref().filter(|_| !self.is_valid)?;
        match socket.peek(&mut header) {
            TcpRead::Bytes(Header::LEN) => {
                let may_lose = tcp_stream::without_message(&header);
                match tcp_stream::announced(&mut header) {
                    Ok(_) => {
                        self.is_valid = true;
                        self.may_lose = may_lose;
                        None
                    }
                    Err(error) => {
                        let shown = ShownAddr(self.key.faddr);
                        pr_info_ratelimited!(
                            "refused a TCP connection from {}: {:?}\n",
                            shown,
                            error
                        );
                        Some(TcpCounter::ListenRefused)
                    }
                }
            }
            TcpRead::Bytes(_) | TcpRead::Nothing => None,
            TcpRead::End => Some(TcpCounter::ListenClosedStale),
        }
    }

    /// Resets the connection, unless a message has arrived that the peer counts as delivered.
    /// Returns `true` if it was reset. May sleep.
    fn is_refused(&self) -> bool {
        let refused = |socket: &TcpSocket| socket.abort_up_to(self.may_lose);
        self.socket.as_ref().is_none_or(refused)
    }
}

/// Decision about an embryo.
enum Verdict {
    Wait,
    /// It has messages, and there is no room for a connection.
    Park,
    /// Its connection has the socket.
    Done,
    Drop(TcpCounter),
}

/// The listener's socket, and those that it has accepted.
struct Sockets {
    listener: Option<TcpSocket>,
    embryos: KVec<Embryo>,
}

#[pin_data]
struct TcpAcceptor {
    node: Arc<Node>,
    transport: Arc<Tcp>,
    #[pin]
    sockets: Mutex<Sockets>,
    #[pin]
    work: Work<TcpAcceptor, 0>,
    #[pin]
    check: DelayedWork<TcpAcceptor, 1>,
}

kernel::impl_has_work! {
    impl HasWork<Self, 0> for TcpAcceptor { self.work }
}
kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for TcpAcceptor { self.check }
}

impl WorkItem<0> for TcpAcceptor {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.serve());
    }
}

impl WorkItem<1> for TcpAcceptor {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.serve());
    }
}

impl TcpEvents for TcpAcceptor {
    fn event(self: &Arc<Self>, _: TcpEvent) {
        self.queue();
    }
}

impl TcpAcceptor {
    fn queue(self: &Arc<Self>) {
        self.transport.queue.enqueue::<_, 0>(self.clone());
    }

    /// Accepts what has connected, and looks at what has arrived.
    fn serve(self: &Arc<Self>) {
        let mut guard = self.sockets.lock();
        let Sockets {
            listener: Some(listener),
            embryos,
        } = &mut *guard
        else {
            return;
        };
        // Sockets that no event reports may wait to be accepted.
        let mut more = false;
        for left in (0..BUDGET).rev() {
            if embryos.len() >= EMBRYOS && !self.make_room(embryos, |_| true) {
                more = true;
                break;
            }
            match listener.accept() {
                Ok(Some(socket)) => self.admit(embryos, socket),
                Ok(None) => break,
                Err(_) => {
                    more = true;
                    break;
                }
            }
            if left == 0 {
                self.queue();
            }
        }
        let now = time::monotonic_ns();
        let (mut index, mut parked) = (0usize, 0usize);
        while let Some((earlier, [embryo, ..])) = embryos.split_at_mut_checked(index) {
            // The messages of an earlier socket come before those of a later one.
            let follows = earlier.iter().any(|it| it.is_valid && it.key == embryo.key);
            match self.decide(embryo, follows, now) {
                Verdict::Wait => {
                    index = index.saturating_add(1);
                    continue;
                }
                Verdict::Park if parked < PARKED => {
                    (index, parked) = (index.saturating_add(1), parked.saturating_add(1));
                    continue;
                }
                Verdict::Done => {}
                Verdict::Park => self.transport.counters.inc(TcpCounter::ListenRefused),
                Verdict::Drop(counter) => self.transport.counters.inc(counter),
            }
            drop(embryos.remove(index));
        }
        // No event reports what is due then.
        if more || !embryos.is_empty() {
            let queue = &self.transport.queue;
            queue.arm_unless_set::<_, 1>(self.clone(), CHECK_MS);
        }
    }

    /// Drops the oldest embryo without a header among those that `may` accepts. Returns `false` if
    /// there is none.
    fn make_room(&self, embryos: &mut KVec<Embryo>, may: impl Fn(&Embryo) -> bool) -> bool {
        let oldest = embryos.iter_mut().position(|embryo| {
            if embryo.is_valid || !may(embryo) {
                return false;
            }
            let has_ended = embryo.look().is_some();
            // The header may have arrived since the last look.
            has_ended || (!embryo.is_valid && embryo.is_refused())
        });
        let Some(index) = oldest else {
            return false;
        };
        self.transport.counters.inc(TcpCounter::ListenRefused);
        drop(embryos.remove(index));
        true
    }

    /// Handles a new socket.
    fn admit(self: &Arc<Self>, embryos: &mut KVec<Embryo>, mut socket: TcpSocket) {
        let (local, peer) = (socket.local_addr(), socket.peer_addr());
        let is_link_local = local.addr.is_unicast_link_local() || peer.addr.is_unicast_link_local();
        let key = ConnKey {
            net: Net::init(),
            laddr: local.addr,
            faddr: peer.addr,
            scope: if is_link_local { peer.scope } else { 0 },
            tos: 0,
            transport: self.transport.id(),
        };
        // Messages within this node do not need TCP.
        if locality(key.faddr, key.scope) != Locality::Elsewhere {
            return self.transport.counters.inc(TcpCounter::ListenRefused);
        }
        if tcp_role::purpose(key.laddr, key.faddr) == Purpose::WakeUp {
            drop(socket);
            let memory = || Ok(self.transport.memory().clone());
            if let Ok(connection) = self.node.connection(key, None, memory) {
                connection.want_for_peer();
                // A connection that is up here is not up for the peer. Its answer to a frame on it
                // is a reset.
                connection.send_header();
            }
            return;
        }
        let is_of_peer = |it: &Embryo| it.key.faddr == key.faddr;
        let of_peer = embryos.iter().filter(|it| is_of_peer(it)).count();
        if of_peer >= OF_PEER && !self.make_room(embryos, is_of_peer) {
            return self.transport.counters.inc(TcpCounter::ListenRefused);
        }
        // Without memory for that, the periodic check looks at it.
        let _ = socket.watch(self.clone());
        let embryo = Embryo {
            socket: Some(socket),
            key,
            since: time::monotonic_ns(),
            is_valid: false,
            may_lose: tcp_stream::WITHOUT_HEADER,
        };
        if embryos.push_within_capacity(embryo).is_err() {
            self.transport.counters.inc(TcpCounter::ListenRefused);
        }
    }

    /// Looks at what has arrived from an embryo. `follows` says that one of the same connection
    /// waits before it.
    fn decide(&self, embryo: &mut Embryo, follows: bool, now: u64) -> Verdict {
        if let Some(counter) = embryo.look() {
            return Verdict::Drop(counter);
        }
        if follows {
            return Verdict::Wait;
        }
        if embryo.is_valid {
            let memory = || Ok(self.transport.memory().clone());
            return match self.node.connection(embryo.key, None, memory) {
                Ok(connection) if self.request(&connection, embryo) => Verdict::Done,
                Err(NoConnection::Full) => match embryo.is_refused() {
                    true => Verdict::Drop(TcpCounter::ListenRefused),
                    false => Verdict::Park,
                },
                // The socket before it is not handled yet, or there is no memory. The peer's TCP
                // has an acknowledgement of what has arrived, so it must not be dropped.
                Ok(_) | Err(NoConnection::Failed(_)) => Verdict::Wait,
            };
        }
        let is_late = now.saturating_sub(embryo.since) > TIMEOUT_NS;
        match is_late && embryo.is_refused() {
            true => Verdict::Drop(TcpCounter::ListenRefused),
            false => Verdict::Wait,
        }
    }

    /// Passes a socket to its connection. Returns `false`, and leaves it, if that takes none now or
    /// there is no memory.
    fn request(&self, connection: &Arc<Connection>, embryo: &mut Embryo) -> bool {
        if !connection.takes_request() {
            return false;
        }
        let Ok(place) = KBox::<IncomingStream>::new_uninit(GFP_KERNEL) else {
            return false;
        };
        let Ok(endpoint) = TcpEndpoint::passive(&self.transport, connection) else {
            return false;
        };
        let Some(mut socket) = embryo.socket.take() else {
            return false;
        };
        socket.unwatch();
        let mut parts = Some((place, socket, endpoint));
        let taken = connection.request_with(|| {
            let (place, socket, endpoint) = parts.take()?;
            let request: KBox<dyn Request> = place.write(IncomingStream::new(socket, endpoint));
            Some(request)
        });
        // The connection has been forgotten just now, and a new one will take the socket.
        embryo.socket = parts.map(|(_, socket, _)| socket);
        taken
    }
}

/// The listener for connections of peers. Dropping it sleeps. No requests arrive afterwards.
pub(crate) struct TcpListener(Arc<TcpAcceptor>);

impl TcpListener {
    /// Listens on all addresses.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE` if other software listens on the port.
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(node: &Arc<Node>, transport: &Arc<Tcp>) -> Result<Self> {
        let (node, transport) = (node.clone(), transport.clone());
        let sockets = Sockets {
            listener: None,
            embryos: KVec::with_capacity(EMBRYOS, GFP_KERNEL)?,
        };
        let acceptor = Arc::pin_init(
            pin_init!(TcpAcceptor {
                node,
                transport,
                sockets <- kernel::new_mutex!(sockets, "TcpAcceptor::sockets"),
                work <- kernel::new_work!("TcpAcceptor::work"),
                check <- kernel::new_delayed_work!("TcpAcceptor::check"),
            }),
            GFP_KERNEL,
        )?;
        let this = Self(acceptor);
        let mut socket = TcpSocket::listen(tcp_stream::PORT, BACKLOG).inspect_err(|error| {
            pr_err!(
                "cannot listen on TCP port {}: {:?}\n",
                tcp_stream::PORT,
                error
            );
        })?;
        socket.watch(this.0.clone())?;
        this.0.sockets.lock().listener = Some(socket);
        this.0.queue();
        Ok(this)
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let mut sockets = self.0.sockets.lock();
        let listener = sockets.listener.take();
        let embryos = core::mem::take(&mut sockets.embryos);
        drop(sockets);
        drop((listener, embryos));
        cancel::<_, 0>(&self.0);
        cancel_delayed::<_, 1>(&self.0);
    }
}
