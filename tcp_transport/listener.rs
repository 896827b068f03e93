// SPDX-License-Identifier: GPL-2.0

//! Connections that peers make.
//!
//! Anybody can connect. So an accepted socket of a peer with a lower address waits here until its
//! first header has arrived. Only then a connection is created for it. The number of those that
//! wait is limited, and so is their time. A socket of a peer with a higher address only wakes this
//! node up, which creates a connection and connects to the peer.
//!
//! C RDS counts a message as delivered when the local TCP has it, and may ask only once for a
//! connection. So if there is no room for a connection, sockets with messages and requests to
//! connect are kept until there is. Their number is limited, too. What is dropped beyond that is
//! counted as lost, and so are requests whose connections are forgotten for others.

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
        SocketSlot,
        Transport, //
    },
    kapi::{
        net::{
            tcp::TcpSocket,
            tcp_events::{
                TcpEvent,
                TcpEvents,
                TcpRead, //
            },
            Locality, //
        },
        print::pr_info_ratelimited,
        sync::{
            cancel,
            cancel_delayed, //
        },
        task::{
            without_io,
            UserId, //
        },
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

/// Numbers of what may wait.
#[derive(Clone, Copy)]
struct WaitingRoom {
    /// Accepted sockets that wait for their first header, or for their connection.
    embryos: usize,
    /// Sockets with messages that wait for room for a connection, beside the embryos. So they do
    /// not keep others from being accepted. TCP takes some 64 KiB for each, or what its settings
    /// allow, and then makes it wait.
    parked: usize,
    /// Requests to connect that wait for room for a connection.
    wakes: usize,
}

const INIT_ROOM: WaitingRoom = WaitingRoom {
    embryos: 64,
    parked: 256,
    wakes: 256,
};

/// Room in each other namespace. Any user can make many of them, so the sockets in all of them have
/// a limit, too.
const OTHER_ROOM: WaitingRoom = WaitingRoom {
    embryos: 16,
    parked: 16,
    wakes: 16,
};

/// Number of accepted sockets that one peer may have.
const OF_PEER: usize = 8;

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
    _slot: SocketSlot,
    key: ConnKey,
    /// Port of the peer.
    port: u16,
    since: u64,
    /// Its first header has arrived.
    is_valid: bool,
    /// Path in that header, if the peer runs this module.
    introduced: Option<u8>,
    /// It has messages, and there is no room for a connection.
    is_parked: bool,
}

impl Embryo {
    /// Looks for the first header. Returns `None` if it is there or may still come, and otherwise
    /// the counter of the reason. May sleep.
    fn look(&mut self, transport: &Tcp) -> Option<TcpCounter> {
        let mut header = [0; Header::LEN];
        let socket = self.socket.as_ref().filter(|_| !self.is_valid)?;
        match socket.peek(&mut header) {
            TcpRead::Bytes(Header::LEN) => match tcp_stream::announced(&mut header) {
                Ok(_) => {
                    self.is_valid = true;
                    self.introduced = tcp_stream::introduced_path(&header);
                    None
                }
                Err(error) => {
                    let shown = ShownAddr(self.key.faddr);
                    if transport.logs() {
                        pr_info_ratelimited!(
                            "refused a TCP connection from {}: {:?}\n",
                            shown,
                            error
                        );
                    }
                    Some(TcpCounter::ListenRefused)
                }
            },
            TcpRead::Bytes(_) | TcpRead::Nothing => None,
            TcpRead::End => Some(TcpCounter::ListenClosedStale),
        }
    }

    /// Calls [`refuse`]. Returns `true` if the connection has the socket.
    fn is_refused(&self, beginning: &mut [u8]) -> bool {
        self.socket.as_ref().is_none_or(|it| refuse(it, beginning))
    }
}

/// Resets a connection, unless a message has arrived that the peer counts as delivered. Returns
/// `true` if it was reset. `beginning` is memory for what has arrived. May sleep.
fn refuse(socket: &TcpSocket, beginning: &mut [u8]) -> bool {
    // The first header may arrive after the first look.
    (0..2).any(|_| {
        let arrived = match socket.peek(beginning) {
            TcpRead::Bytes(count) => beginning.get(..count),
            TcpRead::Nothing | TcpRead::End => None,
        };
        socket.abort_up_to(tcp_stream::without_message(arrived.unwrap_or(&[])))
    })
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

/// Sockets and requests that wait for a connection.
struct Waiting {
    /// Sockets in the order in which they were accepted.
    embryos: KVec<Embryo>,
    /// Requests to connect that found no connection, oldest first.
    wakes: KVec<ConnKey>,
    /// Memory for the beginning of a stream.
    beginning: KVec<u8>,
    room: WaitingRoom,
}

impl Waiting {
    fn new(room: WaitingRoom) -> Result<Self> {
        let sockets = room.embryos.saturating_add(room.parked);
        Ok(Self {
            embryos: KVec::with_capacity(sockets, GFP_KERNEL_ACCOUNT)?,
            wakes: KVec::with_capacity(room.wakes, GFP_KERNEL_ACCOUNT)?,
            beginning: KVec::from_elem(0, tcp_stream::BEGINNING, GFP_KERNEL_ACCOUNT)?,
            room,
        })
    }

    fn is_empty(&self) -> bool {
        self.embryos.is_empty() && self.wakes.is_empty()
    }

    fn parked(&self) -> usize {
        self.embryos.iter().filter(|it| it.is_parked).count()
    }

    /// Returns `true` if no more sockets may be accepted.
    fn is_full(&self) -> bool {
        self.embryos.len().saturating_sub(self.parked()) >= self.room.embryos
    }
}

/// The listener's socket, and all that waits.
struct Sockets {
    listener: Option<TcpSocket>,
    waiting: Waiting,
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
    fn event(self: &Arc<Self>, _: TcpEvent<'_>) {
        self.queue();
    }
}

impl TcpAcceptor {
    fn queue(self: &Arc<Self>) {
        self.transport.queue().enqueue::<_, 0>(self.clone());
    }

    /// Returns the originator of the connections that are made here. A user who has made the
    /// namespace may also have all peers in it.
    fn origin(&self) -> Option<UserId> {
        Some(self.transport.net.owner().unwrap_or(UserId::PEERS))
    }

    /// Accepts what has connected, and looks at what has arrived.
    fn serve(self: &Arc<Self>) {
        let mut guard = self.sockets.lock();
        let Sockets {
            listener: Some(listener),
            waiting,
        } = &mut *guard
        else {
            return;
        };
        // Sockets that no event reports may wait to be accepted.
        let mut more = false;
        for left in (0..BUDGET).rev() {
            if waiting.is_full() && !self.make_room(waiting, |_| true) {
                more = true;
                break;
            }
            match listener.accept() {
                Ok(Some(socket)) => self.admit(waiting, socket),
                Ok(None) => break,
                Err(_) => {
                    self.transport.counters.inc(TcpCounter::ListenFailed);
                    more = true;
                    break;
                }
            }
            if left == 0 {
                self.queue();
            }
        }
        self.decide_all(waiting);
        self.wake_again(&mut waiting.wakes);
        // No event reports what is due then.
        if more || !waiting.is_empty() {
            let queue = self.transport.queue();
            queue.arm_unless_set::<_, 1>(self.clone(), CHECK_MS);
        }
    }

    /// Drops the oldest embryo without a header among those that `may` accepts. Returns `false` if
    /// there is none.
    fn make_room(&self, waiting: &mut Waiting, may: impl Fn(&Embryo) -> bool) -> bool {
        let Waiting {
            embryos, beginning, ..
        } = waiting;
        let oldest = embryos.iter_mut().position(|embryo| {
            if embryo.is_valid || !may(embryo) {
                return false;
            }
            let has_ended = embryo.look(&self.transport).is_some();
            // The header may have arrived since the last look.
            has_ended || (!embryo.is_valid && embryo.is_refused(beginning))
        });
        let Some(index) = oldest else {
            return false;
        };
        self.transport.counters.inc(TcpCounter::ListenRefused);
        drop(embryos.remove(index));
        true
    }

    /// Takes the slot of a new socket, if necessary that of another one in this namespace.
    fn slot(&self, waiting: &mut Waiting) -> Option<SocketSlot> {
        let take = || self.node.socket_slot();
        take().or_else(|| self.make_room(waiting, |_| true).then(take).flatten())
    }

    /// Handles a new socket.
    fn admit(self: &Arc<Self>, waiting: &mut Waiting, mut socket: TcpSocket) {
        let counters = &self.transport.counters;
        let (local, peer) = (socket.local_addr(), socket.peer_addr());
        let is_link_local = local.addr.is_unicast_link_local() || peer.addr.is_unicast_link_local();
        let mut key = ConnKey {
            net: self.transport.net.id(),
            laddr: local.addr,
            faddr: peer.addr,
            scope: if is_link_local { peer.scope } else { 0 },
            tos: 0,
            transport: self.transport.id(),
            path: 0,
        };
        // Messages within this node do not need TCP.
        if self.transport.net.locality(key.faddr, key.scope) != Locality::Elsewhere {
            return counters.inc(TcpCounter::ListenRefused);
        }
        if tcp_role::purpose(key.laddr, key.faddr) == Purpose::WakeUp {
            drop(socket);
            counters.inc(TcpCounter::ListenWoken);
            key.path = self.path_of(&key, peer.port).unwrap_or(0);
            if !waiting.wakes.contains(&key) && !self.wake(key) {
                self.keep_wake(waiting, key);
            }
            return;
        }
        let is_of_peer = |it: &Embryo| it.key.faddr == key.faddr;
        let of_peer = waiting.embryos.iter().filter(|it| is_of_peer(it)).count();
        let has_room = of_peer < OF_PEER || self.make_room(waiting, is_of_peer);
        let Some(slot) = has_room.then(|| self.slot(waiting)).flatten() else {
            return match refuse(&socket, &mut waiting.beginning) {
                true => counters.inc(TcpCounter::ListenRefused),
                false => self.transport.lose(&key),
            };
        };
        let (send, receive) = self.transport.tunables.buffers();
        socket.set_buffers(send, receive);
        if socket.watch(self.clone()).is_err() {
            // The periodic check looks at it.
            counters.inc(TcpCounter::ListenFailed);
        }
        let embryo = Embryo {
            socket: Some(socket),
            _slot: slot,
            key,
            port: peer.port,
            since: time::monotonic_ns(),
            is_valid: false,
            introduced: None,
            is_parked: false,
        };
        if waiting.embryos.push_within_capacity(embryo).is_err() {
            self.transport.lose(&key);
        }
    }

    /// Returns the path of a connection that the peer has made from a port. `None` if it was not
    /// accepted.
    fn path_of(&self, key: &ConnKey, port: u16) -> Option<u8> {
        let first = self.node.find_connection(&ConnKey { path: 0, ..*key });
        first.map_or(Some(0), |first| first.path_of_port(port))
    }

    /// Returns the connection or path with this key, or creates it.
    fn connection(&self, key: &ConnKey) -> Result<Arc<Connection>, NoConnection> {
        let memory = || Ok(self.transport.memory().clone());
        let first = ConnKey { path: 0, ..*key };
        let first = self.node.connection(first, self.origin(), memory)?;
        match key.path {
            0 => Ok(first),
            path => self.node.path(&first, path),
        }
    }

    /// Makes the connection of a peer connect. Returns `false` if there is none now.
    fn wake(&self, key: ConnKey) -> bool {
        let Ok(connection) = self.connection(&key) else {
            return false;
        };
        let wakes = connection.want_for_peer();
        if wakes {
            // A connection that is up here is not up for the peer. Its answer to a frame on it is a
            // reset.
            connection.send_header();
        }
        wakes
    }

    /// Keeps a request to connect, in place of the oldest one if there are too many.
    fn keep_wake(&self, waiting: &mut Waiting, key: ConnKey) {
        let Waiting { wakes, room, .. } = waiting;
        if wakes.len() >= room.wakes {
            if let Ok(oldest) = wakes.remove(0) {
                self.transport.lose(&oldest);
            }
        }
        if wakes.push_within_capacity(key).is_err() {
            self.transport.lose(&key);
        }
    }

    /// Repeats the requests to connect for which there is room now.
    fn wake_again(&self, wakes: &mut KVec<ConnKey>) {
        wakes.retain(|key| !self.node.has_place(key, self.origin()) || !self.wake(*key));
    }

    /// Decides about all embryos, in order.
    fn decide_all(&self, waiting: &mut Waiting) {
        let now = time::monotonic_ns();
        let mut parked = waiting.parked();
        let Waiting {
            embryos,
            beginning,
            room,
            ..
        } = waiting;
        let mut index = 0usize;
        while let Some((earlier, [embryo, ..])) = embryos.split_at_mut_checked(index) {
            let path = self.path_of(&embryo.key, embryo.port);
            embryo.key.path = path.unwrap_or(0);
            // The messages of an earlier socket come before those of a later one.
            let leader = earlier
                .iter()
                .find(|it| it.is_valid && it.key == embryo.key)
                .map(|it| it.is_parked);
            let verdict = match path {
                Some(_) => self.decide(embryo, leader, beginning, now),
                None => self.refuse_path(embryo, beginning),
            };
            match verdict {
                Verdict::Park if embryo.is_parked || parked < room.parked => {
                    parked = parked.saturating_add(usize::from(!embryo.is_parked));
                    embryo.is_parked = true;
                    index = index.saturating_add(1);
                    continue;
                }
                Verdict::Wait => {
                    index = index.saturating_add(1);
                    continue;
                }
                Verdict::Done => {}
                Verdict::Park => self.transport.lose(&embryo.key),
                Verdict::Drop(counter) => self.transport.counters.inc(counter),
            }
            parked = parked.saturating_sub(usize::from(embryo.is_parked));
            drop(embryos.remove(index));
        }
    }

    /// Resets a socket for a path of its connection that was not accepted. As the next link of the
    /// first path it would end the present one, and mix two sequences of numbers.
    fn refuse_path(&self, embryo: &Embryo, beginning: &mut [u8]) -> Verdict {
        if !embryo.is_refused(beginning) {
            self.transport.counters.inc(TcpCounter::ListenLost);
            let (key, port) = (&embryo.key, embryo.port);
            if self.transport.logs() {
                pr_info_ratelimited!("{}: messages from TCP port {} are lost\n", key, port);
            }
        }
        Verdict::Drop(TcpCounter::ListenNoPath)
    }

    /// Looks at what has arrived from an embryo. `leader` says whether one of the same connection
    /// waits before it, and is parked.
    fn decide(
        &self,
        embryo: &mut Embryo,
        leader: Option<bool>,
        beginning: &mut [u8],
        now: u64,
    ) -> Verdict {
        if let Some(counter) = embryo.look(&self.transport) {
            return Verdict::Drop(counter);
        }
        if !embryo.is_valid {
            let is_late = now.saturating_sub(embryo.since) > TIMEOUT_NS;
            return match is_late && embryo.is_refused(beginning) {
                true => Verdict::Drop(TcpCounter::ListenRefused),
                false => Verdict::Wait,
            };
        }
        // A node that has restarted does not know what the ports of its peer mean. The peer sends
        // again what it sends on a path that was not accepted.
        if embryo
            .introduced
            .is_some_and(|path| path != embryo.key.path)
        {
            return Verdict::Drop(TcpCounter::ListenNoPath);
        }
        match leader {
            None => {}
            Some(true) => return Verdict::Park,
            Some(false) => return Verdict::Wait,
        }
        // Asked first, because each refusal of a connection is counted.
        if embryo.is_parked && !self.node.has_place(&embryo.key, self.origin()) {
            return Verdict::Park;
        }
        match self.connection(&embryo.key) {
            Ok(connection) if self.request(&connection, embryo) => Verdict::Done,
            Err(NoConnection::Full) => match embryo.is_refused(beginning) {
                true => Verdict::Drop(TcpCounter::ListenRefused),
                false => Verdict::Park,
            },
            // The socket before it is not handled yet, or there is no memory. The peer's TCP has an
            // acknowledgement of what has arrived, so it must not be dropped.
            Ok(_) | Err(NoConnection::Failed(_)) => Verdict::Wait,
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
    /// Listens on all addresses of the transport's namespace.
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
        let room = match transport.net.id().is_init() {
            true => INIT_ROOM,
            false => OTHER_ROOM,
        };
        let sockets = Sockets {
            listener: None,
            waiting: Waiting::new(room)?,
        };
        let acceptor = Arc::pin_init(
            pin_init!(TcpAcceptor {
                node,
                transport,
                sockets <- kernel::new_mutex!(sockets, "TcpAcceptor::sockets"),
                work <- kernel::new_work!("TcpAcceptor::work"),
                check <- kernel::new_delayed_work!("TcpAcceptor::check"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let this = Self(acceptor);
        let transport = &this.0.transport;
        let mut socket =
            TcpSocket::listen(&transport.net, tcp_stream::PORT, BACKLOG).inspect_err(|error| {
                transport.counters.inc(TcpCounter::ListenFailed);
                if transport.logs() {
                    pr_info_ratelimited!(
                        "cannot listen on TCP port {}: {:?}\n",
                        tcp_stream::PORT,
                        error
                    );
                }
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
        let embryos = core::mem::take(&mut sockets.waiting.embryos);
        drop(sockets);
        drop((listener, embryos));
        cancel::<_, 0>(&self.0);
        cancel_delayed::<_, 1>(&self.0);
    }
}
