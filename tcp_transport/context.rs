// SPDX-License-Identifier: GPL-2.0

//! The socket of an endpoint, and its work.
//!
//! Events of the socket, and frames of the connection, queue the work. It receives, sends, and
//! notes what TCP has acknowledged. A program may send without the work, see [`TcpContext::push`].
//! An event may receive without it, see `arrivals.rs`. The lock of the work also
//! keeps it away from the teardown.

use super::{
    counters::TcpCounter,
    read_side::ReadSide,
    reader::{
        AckedBy,
        Reader, //
    },
    stage::{
        large_ring,
        FrameStage, //
    },
    tcp::Tcp,
    window::ReadStop,
    writer::{
        Writer,
        Written, //
    }, //
};
use crate::{
    conn::{
        Connection,
        EndpointEvent,
        EndpointProgress, //
    },
    kapi::{
        net::{
            tcp::{
                TcpSocket,
                TcpState, //
            },
            tcp_events::{
                TcpEvent,
                TcpEvents, //
            }, //
        },
        print::pr_info_ratelimited,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        task::without_io,
        time, //
    },
    proto::{
        starvation::{
            StreamCheck,
            StreamStarvation, //
        },
        tcp_watch::{
            StreamSigns,
            TcpSigns,
            TcpWatch, //
        },
        SECOND, //
    },
    recv_pool::Context, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

/// Frames that one run of the work receives. Then it is queued again, behind others.
pub(super) const BUDGET: usize = 256;

/// Time in milliseconds until memory is looked for again.
pub(super) const RETRY_MS: u32 = 10;

/// The same for a connection whose incomplete messages have a limit. Anybody can have many of them.
const LIMITED_RETRY_MS: u32 = 250;

/// Time in nanoseconds until the memory to carry many messages is looked for again. The socket also
/// works without it.
pub(super) const GROW_INTERVAL: u64 = SECOND;

/// Purpose of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It carries messages, and this node has connected.
    Active,
    /// It carries messages, and the peer has connected.
    Passive,
    /// It asks the peer to connect. The peer resets it.
    WakeUp,
}

/// The socket, and what the work needs for it.
pub(super) struct Io {
    pub(super) socket: Option<TcpSocket>,
    pub(super) writer: Writer,
    /// Value of the reader.
    pub(super) acked_by: AckedBy,
    is_up: bool,
    /// A message was sent or received.
    pub(super) has_message: bool,
    /// Time from which on the memory to carry many messages may be looked for. `None` if there is
    /// some.
    pub(super) grow_at: Option<u64>,
    /// Reading waits for memory.
    pub(super) starves: bool,
    pub(super) starvation: StreamStarvation,
    watch: TcpWatch,
}

/// The socket of an endpoint, and its work.
#[pin_data]
pub(super) struct TcpContext {
    pub(super) connection: Arc<Connection>,
    pub(super) progress: EndpointProgress,
    pub(super) transport: Arc<Tcp>,
    role: Role,
    #[pin]
    pub(super) io: Mutex<Io>,
    #[pin]
    pub(super) read_side: SpinLockBh<ReadSide>,
    #[pin]
    pub(super) stage: SpinLockBh<FrameStage>,
    /// The work has to receive. Set before it is queued.
    pub(super) deferred: Atomic<bool>,
    /// A transmission waits for room.
    pub(super) blocked: Atomic<bool>,
    /// Payload bytes, and at least 1, of the buffer that transmission waits for. 0 without one.
    pub(super) wanted: Atomic<u32>,
    /// Number of times that the peer was found active.
    active: Atomic<u32>,
    #[pin]
    work: Work<TcpContext, 0>,
    #[pin]
    retry: DelayedWork<TcpContext, 1>,
}

kernel::impl_has_work! {
    impl HasWork<Self, 0> for TcpContext { self.work }
}
kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for TcpContext { self.retry }
}

impl WorkItem<0> for TcpContext {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.serve());
    }
}

impl WorkItem<1> for TcpContext {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| this.serve());
    }
}

impl TcpEvents for TcpContext {
    fn event(self: &Arc<Self>, event: TcpEvent<'_>) {
        let counters = &self.transport.counters;
        match event {
            TcpEvent::Readable(socket) => {
                counters.inc(TcpCounter::DataReadyCalls);
                if self.receive_in_event(&socket) {
                    return;
                }
                counters.inc(TcpCounter::DataReadyDeferred);
                self.deferred.store(true, Relaxed);
            }
            TcpEvent::Writable => counters.inc(TcpCounter::WriteSpaceCalls),
            TcpEvent::State | TcpEvent::Acceptable => self.deferred.store(true, Relaxed),
        }
        self.queue();
    }
}

impl TcpContext {
    /// Creates a context without a socket.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(super) fn new(
        transport: &Arc<Tcp>,
        connection: &Arc<Connection>,
        role: Role,
    ) -> Result<Arc<Self>> {
        let (connection, transport) = (connection.clone(), transport.clone());
        let carries = role != Role::WakeUp;
        let io = Io {
            socket: None,
            writer: Writer::new(carries)?,
            acked_by: AckedBy::Unknown,
            is_up: false,
            has_message: false,
            grow_at: Some(0),
            starves: false,
            starvation: StreamStarvation::new(),
            watch: TcpWatch::new(),
        };
        let stage = FrameStage::new(carries)?;
        let read_side = ReadSide::new(Reader::new(transport.partial_charge()));
        Arc::pin_init(
            pin_init!(Self {
                connection,
                progress: EndpointProgress::new(),
                transport,
                role,
                io <- kernel::new_mutex!(io, "TcpContext::io"),
                read_side <- new_spinlock_bh!(read_side, "TcpContext::read_side"),
                stage <- new_spinlock_bh!(stage, "TcpContext::stage"),
                deferred: Atomic::new(true),
                blocked: Atomic::new(false),
                wanted: Atomic::new(0),
                active: Atomic::new(0),
                work <- kernel::new_work!("TcpContext::work"),
                retry <- kernel::new_delayed_work!("TcpContext::retry"),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Records an event, and wakes the connection's worker. Any context.
    pub(super) fn note(&self, event: EndpointEvent) {
        self.progress.set(event);
        self.connection.wake_worker();
    }

    /// Queues the work. Any context.
    pub(super) fn queue(self: &Arc<Self>) {
        self.transport.queue().enqueue::<_, 0>(self.clone());
    }

    fn retry_later(self: &Arc<Self>, delay_ms: u32) {
        let queue = self.transport.queue();
        queue.arm_unless_set::<_, 1>(self.clone(), delay_ms);
    }

    /// Takes a socket, calls `start` with it, and looks for its first events. May sleep.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    /// - Those of `start`.
    pub(super) fn start(
        self: &Arc<Self>,
        socket: TcpSocket,
        start: impl FnOnce(&TcpSocket) -> Result,
    ) -> Result {
        let mut io = self.io.lock();
        // First, so that also a socket that fails here is received from before it is closed.
        let socket = io.socket.insert(socket);
        socket.watch(self.clone())?;
        socket.report_acks(true);
        start(socket)?;
        drop(io);
        // Events before the watch were not reported.
        self.queue();
        Ok(())
    }

    /// Sends what the caller has staged. Returns `false` if another context has the socket now.
    ///
    /// # Context
    ///
    /// Process context, without a lock. May sleep.
    pub(super) fn push(self: &Arc<Self>) -> bool {
        let Some(mut io) = self.io.try_lock() else {
            return false;
        };
        if !without_io(|| self.send_staged(&mut io)) {
            // With the lock held, as in `serve`.
            self.queue();
        }
        true
    }

    /// Sends what is staged, a batch at most: others may stage more meanwhile, and wait for the
    /// socket. Returns `false` if the work has more to do.
    fn send_staged(&self, io: &mut Io) -> bool {
        let Some(socket) = io.socket.as_ref().filter(|_| !self.progress.has_ended()) else {
            // The next endpoint sends it.
            return true;
        };
        if !io.has_message || io.acked_by == AckedBy::Unknown {
            // The work notes what the first messages show.
            return false;
        }
        let counters = &self.transport.counters;
        let sent = io
            .writer
            .run(socket, &self.connection, &self.stage, counters, 1);
        self.look_for_acks(io);
        // A transmission sets them with the stage locked, so none is missed here.
        let waits = self.blocked.load(Relaxed) || self.wanted.load(Relaxed) != 0;
        matches!(sent, Ok(Written::All | Written::Blocked)) && !waits
    }

    /// Does what there is to do for the socket. May sleep.
    fn serve(self: &Arc<Self>) {
        let mut guard = self.io.lock();
        let io = &mut *guard;
        let Some(socket) = &io.socket else {
            return;
        };
        let state = socket.state();
        if self.progress.has_ended() || state == TcpState::Connecting {
            return;
        }
        if self.role == Role::WakeUp {
            if state == TcpState::Ended {
                self.progress.end();
                self.note(EndpointEvent::Rejected);
            }
            return;
        }
        if !io.is_up {
            if state == TcpState::Ended && self.role == Role::Active {
                self.progress.end();
                self.note(EndpointEvent::Rejected);
                return;
            }
            io.is_up = true;
            io.writer.begin(socket.snd_una());
            self.note(EndpointEvent::Established);
        }
        let has_memory = self.find_memory();
        let Some((stop, gives_up)) = self.receive(io, state) else {
            return;
        };
        let Self {
            connection,
            transport,
            ..
        } = &**self;
        let Some(socket) = &io.socket else {
            return;
        };
        let counters = &transport.counters;
        let writer = &mut io.writer;
        let sent = writer.run(socket, connection, &self.stage, counters, usize::MAX);
        self.look_for_acks(io);
        let goes_on = match sent {
            Ok(Written::Unacknowledged) => io.writer.has_room(),
            Ok(Written::Batches) => true,
            _ => false,
        };
        // Without room or memory, a transmission would only queue this work again.
        let has_room = self.stage.lock().room() > 0;
        if has_memory && has_room && self.blocked.xchg(false, Full) {
            connection.resume();
        }
        // The lock is still held. So the teardown, which takes it, finds all that is queued here.
        match stop {
            ReadStop::Nothing if !goes_on => {}
            ReadStop::Nothing | ReadStop::Budget => self.queue(),
            ReadStop::NoMemory if gives_up => return self.lose(),
            ReadStop::NoMemory if transport.has_limit(connection) => {
                self.retry_later(LIMITED_RETRY_MS);
            }
            ReadStop::NoMemory => self.retry_later(RETRY_MS),
            ReadStop::End => return self.lose(),
        }
        match sent {
            // An event queues the work again.
            Ok(Written::All | Written::Blocked | Written::Unacknowledged | Written::Batches) => {}
            Ok(Written::NoMemory) => self.retry_later(RETRY_MS),
            Err(error) => {
                connection.note_failure("send", error);
                self.lose();
            }
        }
    }

    /// Begins or continues the wait of the receive side for memory. Returns `true` if the endpoint
    /// is to be lost.
    ///
    /// A partial message keeps its memory until the rest has arrived. If such messages keep all
    /// memory, one of them has to go with its connection, and is sent again. A peer that has ended
    /// the stream sends on another one, and that takes the place of this one.
    #[cold]
    pub(super) fn wait_for_memory(
        &self,
        starvation: &mut StreamStarvation,
        reader: &Reader,
        state: TcpState,
    ) -> bool {
        let Self {
            connection,
            transport,
            ..
        } = self;
        let check = StreamCheck {
            frames: reader.frames,
            partial: connection.path.in_reassembly(),
            ended: state == TcpState::Ended,
            sends_again: reader.acked_by == AckedBy::Rds,
        };
        let now = time::monotonic_ns();
        if !starvation.wait(now, &check) {
            return false;
        }
        if check.ended {
            return true;
        }
        if !transport.may_give_up(connection, now) {
            return false;
        }
        starvation.end();
        transport.counters.inc(TcpCounter::RxStarvedDrop);
        connection.note_failure("receive memory", ENOMEM);
        pr_info_ratelimited!(
            connection.log_limit,
            "{}: no memory to receive: dropping the connection\n",
            connection.key
        );
        true
    }

    /// Looks for the first message of the connection, unless it has been found.
    pub(super) fn look_for_message(&self, is_found: &mut bool) {
        *is_found = *is_found || self.connection.look_for_message();
    }

    /// Allocates the memory to carry many messages, as far as it is missing. Anybody can make this
    /// node have a socket, so new ones have little.
    ///
    /// Each part may be in several pieces, and has `__GFP_NOWARN`: nothing depends on it.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    #[cold]
    pub(super) fn grow(&self, reader: &mut Reader, writer: &mut Writer) -> Result {
        reader.grow()?;
        writer.grow()?;
        let mut ring = large_ring()?;
        // The earlier memory is dropped without the lock.
        self.stage.lock().grow(&mut ring);
        Ok(())
    }

    /// Returns a number that changes if the peer is active. The flag is `true` if the peer has left
    /// a message incomplete, or sent nothing at all, for too long. Process context, without a lock.
    pub(super) fn activity(self: &Arc<Self>) -> (u32, bool) {
        let mut has_stopped = false;
        // The lock is taken only if it is free. Otherwise there is something to do for the socket.
        let is_active = self.io.try_lock().is_none_or(|mut guard| {
            let io = &mut *guard;
            let Some(socket) = &io.socket else {
                return true;
            };
            let (last_ack, owes) = socket.last_ack();
            let awaits_first = io.acked_by == AckedBy::Unknown;
            if awaits_first && self.connection.is_path_to_c() {
                // It is known since the last frames of the first path, and those wake nobody here.
                self.queue();
            }
            let Some((frames, is_incomplete)) = self.received() else {
                return true;
            };
            let stream = StreamSigns {
                frames,
                awaits_first,
                is_incomplete,
                starves: io.starves,
            };
            has_stopped = io.watch.has_stopped(&stream, time::monotonic_ns());
            io.watch.is_active(&TcpSigns { last_ack, owes })
        });
        let active = match is_active {
            true => self.active.fetch_add(1, Relaxed).wrapping_add(1),
            false => self.active.load(Relaxed),
        };
        (active, has_stopped)
    }

    /// Marks the endpoint as lost. Any context.
    pub(super) fn lose(&self) {
        if !self.progress.has_ended() {
            self.note(EndpointEvent::Lost);
        }
    }

    /// Makes room for the buffer that transmission waits for. Returns `false` if there is no memory
    /// for it. May sleep.
    fn find_memory(self: &Arc<Self>) -> bool {
        let len = self.wanted.xchg(0, Full);
        if len == 0 {
            return true;
        }
        let memory = self.transport.memory();
        let found = memory.make_room(len, Context::MaySleep).is_ok();
        if found {
            self.blocked.store(true, Relaxed);
        } else {
            self.wanted.store(len, Relaxed);
            self.retry_later(RETRY_MS);
        }
        found
    }

    /// Notes what TCP has acknowledged. With a peer that acknowledges nothing itself, those
    /// messages count as received, and each acknowledgement becomes an event.
    fn look_for_acks(&self, io: &mut Io) {
        let Io {
            socket: Some(socket),
            acked_by,
            writer,
            ..
        } = io
        else {
            return;
        };
        loop {
            writer.note_una(socket.snd_una());
            let waits = match *acked_by {
                AckedBy::Rds => !writer.has_room(),
                AckedBy::Unknown => false,
                AckedBy::Tcp => {
                    self.take_acks(writer);
                    writer.is_unacknowledged()
                }
            };
            socket.report_acks(waits);
            if !waits {
                return;
            }
            let before = socket.snd_una();
            socket.ask_for_acks();
            if socket.snd_una() == before {
                return;
            }
        }
    }

    /// Counts the messages that TCP has acknowledged as received.
    pub(super) fn take_acks(&self, writer: &mut Writer) {
        let acked = core::mem::take(&mut writer.acked);
        if acked != 0 {
            self.connection.note_taken(acked);
        }
    }
}
