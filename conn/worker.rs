// SPDX-License-Identifier: GPL-2.0

//! The worker that brings a connection up and down.
//!
//! Each connection has one work item. It feeds events to the state machine of `proto::connect` and
//! carries out its actions, one by one, in process context. A source of events sets them in a mask
//! and wakes the worker, so CM and completion handlers never wait for it.

use super::{
    path::{
        PathEvent,
        Worker, //
    },
    table::AttemptGroup,
    transport::{
        EndpointEvent,
        NextStep, //
    },
    tx_queue::BATCH,
    Connection, //
};
use crate::{
    kapi::{
        errno::Errno,
        print::{
            pr_change_ratelimited,
            About, //
        },
        sync::Fifo,
        task::{
            without_io,
            UserId, //
        },
        time, //
    },
    msg::Message,
    proto::{
        attempts::AttemptKind,
        connect::{
            Action,
            Event,
            Inputs,
            Machine,
            State, //
        },
        wire::CONG_MAP_BYTES,
        SECOND, //
    },
    stats::Counter,
    trace, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};

kernel::impl_has_work! {
    impl HasWork<Self, 0> for Connection { self.work }
}
kernel::impl_has_work! {
    impl HasWork<Self, 3> for Connection { self.xmit_work }
}
kernel::impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Connection { self.timer }
}

impl WorkItem<0> for Connection {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            this.work();
        });
    }
}

impl WorkItem<1> for Connection {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            this.work();
            // The timer may have fired early, or the worker may have set a new deadline meanwhile.
            // The worker lock keeps the deadline stable while the timer is armed again.
            let _worker = this.path.worker.lock();
            let deadline = this.path.deadline.load(Relaxed);
            if deadline != 0 && !this.has_ended() {
                // The kernel counts in jiffies, so the timer may fire early by the monotonic clock.
                let left = deadline.saturating_sub(time::monotonic_ns());
                // CAST: a delay that was given in 32 bits of milliseconds.
                let left_ms = left.div_ceil(1_000_000) as u32;
                this.node.workers.arm::<_, 1>(this.clone(), left_ms);
            }
        });
    }
}

impl WorkItem<3> for Connection {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        without_io(|| {
            let (tx, token) = this.path.tx.take_over();
            this.transmit_for_all(tx, token);
        });
    }
}

impl Connection {
    /// Wakes the worker to look for events.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn wake_worker(self: &Arc<Self>) {
        self.node.workers.enqueue::<_, 0>(self.clone());
    }

    /// Requests a connection because there is something to send.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn want(self: &Arc<Self>) {
        self.path.set_event(PathEvent::Wanted);
        self.wake_worker();
    }

    /// Requests a connection because programs wait to send, once a second at most. Nothing is
    /// queued, so an attempt that fails has no backoff.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn want_for_waiting(self: &Arc<Self>) {
        let now = time::monotonic_ns();
        let wanted = &self.path.wanted_for_waiting;
        let last = wanted.load(Relaxed);
        let is_due = now.saturating_sub(last) >= SECOND;
        if is_due && wanted.cmpxchg(last, now, Relaxed).is_ok() {
            self.want();
        }
    }

    /// Requests a reset of the connection, if it is up.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn begin_reset(self: &Arc<Self>) {
        self.path.set_event(PathEvent::Reset);
        self.wake_worker();
    }

    /// Starts to shut the connection down for good.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn begin_stop(self: &Arc<Self>) {
        self.path.set_event(PathEvent::Stop);
        self.wake_worker();
    }

    /// Starts to end the endpoint and to reject the request, if there are any. Later events may
    /// create others.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn begin_suspend(self: &Arc<Self>) {
        self.path.set_event(PathEvent::Suspended);
        self.wake_worker();
    }

    /// Ends the endpoint and rejects the request. Earlier failures delay no later connection.
    /// Sleeps.
    #[cold]
    fn suspend(self: &Arc<Self>, worker: &mut Worker) {
        self.handle(worker, Event::Stop);
        worker.machine = Machine::new();
        self.drop_answers();
        // Nothing of this node waits any more.
        let _: bool = self.path.take_event(PathEvent::Wanted);
        self.reject_request();
    }

    /// Handles events until there are none.
    fn work(self: &Arc<Self>) {
        let mut worker = self.path.worker.lock();
        if self.path.take_event(PathEvent::Suspended) {
            self.suspend(&mut worker);
        }
        while let Some(event) = self.next_event(&mut worker) {
            self.handle(&mut worker, event);
        }
        if self.has_ended() {
            // The worker no longer takes requests, and no other one can come.
            self.reject_request();
        }
    }

    /// Feeds an event to the state machine and carries out the resulting actions.
    pub(super) fn handle(self: &Arc<Self>, worker: &mut Worker, event: Event) {
        let waits = self.path.is_pending()
            || self.others_are_pending()
            || (event == Event::Idle && self.path.operates());
        let for_peer = !waits && event != Event::Idle && self.path.peer_may_wait.load(Relaxed);
        let wait_ms = match worker.machine.begins_attempt(event) {
            true => self.begin_attempt(worker, event, for_peer),
            false => 0,
        };
        // Another path is never connected at once: the first one may have no link any more.
        let connects_at_once = self.first.is_none() || event == Event::Request;
        let inputs = Inputs {
            lower: self.is_lower() && connects_at_once,
            pending: waits || for_peer,
            for_peer,
            wait_ms,
            random: time::random_u32(),
            timing: self.node.tunables.timing(),
        };
        let before = worker.machine.state();
        let outcome = worker.machine.handle(event, &inputs);
        worker.waits_for_first &= outcome.state == State::Waiting;
        self.enter(event, before, outcome.state);
        if before != outcome.state || event == Event::Step {
            let conn = self.key.traced();
            trace::conn_state(&conn, event, before, outcome.state);
        }
        let attempted = !matches!(before, State::Down | State::Waiting | State::Up);
        let ended = matches!(outcome.state, State::Down | State::Waiting);
        if attempted && ended && event != Event::Stop {
            self.node.stats.inc(Counter::ConnAttemptFailed);
        }
        if event == Event::Fault && before == State::Up {
            self.node.stats.inc(Counter::ConnOpRefused);
        }
        if event == Event::Idle && before == State::Up && before != outcome.state {
            self.node.stats.inc(Counter::ConnIdleClosed);
        }
        for action in outcome.actions {
            self.act(worker, action);
        }
        let attempts = !matches!(outcome.state, State::Down | State::Waiting | State::Up);
        if attempts && before != outcome.state {
            self.path.tx.lock().idle_path = None;
        }
        if let Some((group, place)) = worker.counted.take_if(|_| !attempts) {
            let mut connections = self.node.connections.lock();
            connections.tree.end_attempt(group, place);
        }
        let charged = worker.charged.take_if(|_| !attempts);
        if let Some((charge, place)) = self.quota_charge.as_ref().zip(charged) {
            charge.end_attempt(place);
        }
        let waits_for_place = worker.machine.waits_for_place() && !worker.waits_for_first;
        if worker.counted_waiting.is_some() != waits_for_place {
            let group = worker.counted_waiting.unwrap_or_else(|| self.peer_group());
            worker.counted_waiting = waits_for_place.then_some(group);
            let mut connections = self.node.connections.lock();
            connections.tree.note_waiting(group, waits_for_place);
        }
    }

    /// Counts an attempt to connect: for peers or strangers together if only the peer may need it.
    /// Otherwise for the user whose program first needed the connection, unless it has been up.
    /// The attempts in all namespaces of a user have one limit, which includes those for peers. In
    /// a namespace of root each of its users has such a limit.
    ///
    /// Returns 0 if the attempt may begin. Otherwise returns the time in milliseconds after which
    /// to ask again.
    fn begin_attempt(self: &Arc<Self>, worker: &mut Worker, event: Event, for_peer: bool) -> u32 {
        let wait_ms = self.path_wait_ms(for_peer, !worker.waits_for_first);
        worker.waits_for_first = wait_ms > 0;
        if wait_ms > 0 {
            return wait_ms;
        }
        let kind = AttemptKind::of(&worker.machine, event, for_peer);
        let group = if for_peer {
            self.peer_group()
        } else {
            let user = self.creator.filter(|user| *user != UserId::PEERS);
            let Some(user) = user.filter(|_| !self.path.has_answered.load(Relaxed)) else {
                return 0;
            };
            AttemptGroup::User(user)
        };
        let is_of_user = !for_peer || self.node.is_of_user();
        let charge = self.quota_charge.as_ref().filter(|_| is_of_user);
        let charged = match charge.map_or(Ok(None), |charge| charge.begin_attempt(kind)) {
            Ok(place) => place,
            Err(wait_ms) => return wait_ms,
        };
        let mut connections = self.node.connections.lock();
        let begun = connections.tree.begin_attempt(group, kind);
        drop(connections);
        match begun {
            Ok(place) => {
                worker.counted = place.map(|place| (group, place));
                worker.charged = charged;
                0
            }
            Err(wait_ms) => {
                if let Some((charge, place)) = charge.zip(charged) {
                    charge.end_attempt(place);
                }
                wait_ms
            }
        }
    }

    fn next_event(self: &Arc<Self>, worker: &mut Worker) -> Option<Event> {
        if self.has_ended() {
            return (worker.machine.state() != State::Down).then_some(Event::Stop);
        }
        if self.path.take_event(PathEvent::Negotiated) {
            self.update_paths();
        }
        if self.path.has_event(PathEvent::Restarted) {
            if !worker.is_down() && !worker.is_waiting() {
                return Some(Event::Lost);
            }
            self.path.take_event(PathEvent::Restarted);
            self.move_to_first();
        }
        let has_endpoint = !worker.is_down() && !worker.is_waiting();
        if self.path.take_event(PathEvent::Misplaced) && has_endpoint {
            // Frames may arrive before this node knows that the link is up.
            pr_change_ratelimited!(
                self.log_limit,
                "{}: the peer takes this path for the first one\n",
                self.key
            );
            self.note_failure("other path", Errno::ConnectionReset);
            return Some(Event::Lost);
        }
        if core::mem::take(&mut worker.failed) {
            return Some(Event::Lost);
        }
        let by_program = self.path.take_event(PathEvent::Reset);
        let for_map = self.path.take_event(PathEvent::MapWanted);
        if (by_program || for_map) && worker.is_up() {
            let why = match by_program {
                true => "reset by a program",
                false => "connecting again, so that the peer sends its congestion map",
            };
            pr_change_ratelimited!(self.log_limit, "{}: {}\n", self.key, why);
            self.note_failure("reset", Errno::ConnectionReset);
            // The connection comes up again even if nothing waits to be sent.
            self.path.set_event(PathEvent::Wanted);
            return Some(self.loss(worker));
        }
        let event = self.endpoint_event(worker);
        if event.is_some() {
            return event;
        }
        if self.has_request() && !self.has_to_move() {
            return Some(Event::Request);
        }
        if self.path.take_event(PathEvent::Allowed) && worker.waits_for_first {
            self.path.deadline.store(0, Relaxed);
            return Some(Event::Timer);
        }
        let deadline = self.path.deadline.load(Relaxed);
        if deadline != 0 && time::monotonic_ns() >= deadline {
            self.path.deadline.store(0, Relaxed);
            return Some(Event::Timer);
        }
        if self.path.take_event(PathEvent::Wanted) {
            return Some(Event::Wanted);
        }
        let idle = self.path.take_event(PathEvent::Idle);
        idle.then_some(Event::Idle)
    }

    /// Takes the next event of the endpoint that concerns the state machine.
    fn endpoint_event(&self, worker: &mut Worker) -> Option<Event> {
        loop {
            let endpoint = worker.endpoint.as_mut()?;
            return Some(match endpoint.progress().take()? {
                EndpointEvent::StepDone => match endpoint.next_step() {
                    Ok(NextStep::Begun) => Event::Step,
                    // Another event may have been recorded meanwhile.
                    Ok(NextStep::Repeated) => continue,
                    Ok(NextStep::Failed) => Event::Lost,
                    Err(error) => {
                        self.note_failed_attempt(worker, Action::Prepare, error);
                        Event::Lost
                    }
                },
                EndpointEvent::Prepared => Event::Prepared,
                EndpointEvent::Established => Event::Established,
                EndpointEvent::Fault => Event::Fault,
                EndpointEvent::Rejected => Event::Rejected,
                EndpointEvent::Moved => Event::Moved,
                EndpointEvent::Lost => self.loss(worker),
            });
        }
    }

    /// Returns the event for an endpoint that was lost. The peer may have ended it because of a
    /// refused operation, which the device reports later.
    fn loss(&self, worker: &Worker) -> Event {
        self.await_answers();
        let endpoint = worker.endpoint.as_ref();
        match endpoint.is_some_and(|endpoint| endpoint.progress().take_fault()) {
            true => Event::Fault,
            false => Event::Lost,
        }
    }

    /// Waits for the device's reports of operations, if the peer has disconnected.
    fn await_answers(&self) {
        let link = self.path.tx.lock().link.clone();
        if let Some(link) = link {
            link.await_answers();
        }
    }

    fn act(self: &Arc<Self>, worker: &mut Worker, action: Action) {
        let result = match action {
            Action::Prepare => self.prepare(worker),
            Action::Connect => match &mut worker.endpoint {
                Some(endpoint) => endpoint.connect(),
                None => Ok(()),
            },
            Action::Accept => self.accept(worker),
            Action::Reject => {
                if self.reject_request() {
                    self.note_drop(Counter::IbConnectRaced, 1);
                }
                Ok(())
            }
            Action::Teardown => {
                drop(worker.endpoint.take());
                // Failures of the teardown are no reasons for it, nor of the next endpoint.
                self.path.drop_reason.store(0, Relaxed);
                self.forget_partial();
                self.drop_lost();
                Ok(())
            }
            Action::Arm(delay_ms) => {
                let delay_ns = u64::from(delay_ms).saturating_mul(1_000_000);
                let deadline = time::monotonic_ns().saturating_add(delay_ns);
                self.path.deadline.store(deadline.max(1), Relaxed);
                // The kernel's timer may fire early by the monotonic clock, so it is set 1 ms late.
                let delay_ms = delay_ms.saturating_add(1);
                self.node.workers.arm::<_, 1>(self.clone(), delay_ms);
                Ok(())
            }
            Action::Disarm => {
                self.path.deadline.store(0, Relaxed);
                Ok(())
            }
            Action::GoneUp => {
                self.go_up(worker);
                Ok(())
            }
            Action::GoneDown => {
                self.go_down();
                Ok(())
            }
        };
        if let Err(error) = result {
            worker.failed = true;
            self.note_failed_attempt(worker, action, error);
        }
    }

    /// Traces that an action has failed, and logs it unless an earlier one was logged: the
    /// following attempts fail most likely for the same reason.
    #[cold]
    fn note_failed_attempt(&self, worker: &mut Worker, action: Action, error: Error) {
        self.note_failure("connect", error);
        if !worker.attempt_logged && self.log_limit.may_print(About::Attempt) {
            worker.attempt_logged = true;
            pr_info!(
                "{}: cannot connect ({:?}: {:?}), trying again\n",
                self.key,
                action,
                error
            );
        }
    }

    fn prepare(self: &Arc<Self>, worker: &mut Worker) -> Result {
        let transport = self.node.transports.get(self.key.transport).ok_or(ENODEV)?;
        worker.endpoint = Some(transport.clone().prepare(self)?);
        Ok(())
    }

    fn accept(self: &Arc<Self>, worker: &mut Worker) -> Result {
        let request = self.path.request.lock().take();
        let mut request = request.ok_or(ENODEV)?;
        worker.endpoint = Some(request.accept(self)?);
        Ok(())
    }

    /// Starts to send on the new link: first the messages that the last link may have lost.
    fn go_up(self: &Arc<Self>, worker: &mut Worker) {
        let Some(link) = worker.endpoint.as_ref().and_then(|e| e.link()) else {
            worker.failed = true;
            return;
        };
        worker.attempt_logged = false;
        self.refusals.store(0, Relaxed);
        self.fault_limiter.recover();
        self.path.fragment.store(link.fragment().bytes(), Relaxed);
        // An endpoint that has ended already may have ended because of a lack of memory.
        if worker
            .endpoint
            .as_ref()
            .is_some_and(|e| !e.progress().has_ended())
        {
            self.path.lacks_large_pieces.store(false, Relaxed);
        }
        // On another path a map may be late. This module ignores it there, and C RDS does not.
        let sends_map = self.first.is_none() || self.is_path_to_rds_rust();
        let mut tx = self.path.tx.lock();
        let queue = &mut tx.queue;
        queue.state.reconnected();
        let mut again = Fifo::new();
        again.append(&mut queue.sent);
        again.append(&mut queue.unsent);
        queue.unsent = again;
        queue.backlog = u32::MAX;
        queue.cong_left = if sends_map { CONG_MAP_BYTES } else { 0 };
        queue.cong_again = false;
        tx.link = Some(link.clone());
        tx.times_up = tx.times_up.wrapping_add(1);
        tx.up_since = time::monotonic_ns();
        self.transmit_and_unlock(tx);
        let mut rx = self.path.rx.lock();
        let negotiates = rx.negotiation.exists();
        // The node with the lower address has connected.
        rx.negotiation.up(time::monotonic_ns(), !self.is_lower());
        drop(rx);
        if negotiates {
            self.path.set_event(PathEvent::Negotiated);
        }
        if self.creator != Some(UserId::PEERS) {
            self.note_answer();
        }
        link.announce(self);
    }

    /// Stops sending. Unacknowledged messages stay in the queues.
    fn go_down(&self) {
        // The reason may be that the address has moved, and not the loss.
        self.await_answers();
        // Acknowledged messages do not count as pending.
        while self.drop_acked() {}
        let mut guard = self.path.tx.lock();
        let tx = &mut *guard;
        let link = tx.link.take();
        let queue = &mut tx.queue;
        queue.cong_left = 0;
        // A message cancelled while partially sent was only to be completed. A keepalive that was
        // sent was meant for this link. An unsent keepalive can be sent on the next link. Such
        // messages behind others are removed by `drop_lost`.
        let mut cancelled = Fifo::new();
        for _ in 0..BATCH {
            let Some(first) = queue.sent.pop_front_if(Message::is_for_one_link) else {
                break;
            };
            cancelled.push_back(first);
        }
        if let Some(first) = queue.unsent.pop_front_if(Message::is_for_one_link) {
            cancelled.push_back(first);
        }
        // The queues are ordered by sequence.
        let unsent = queue.unsent.front().map_or(u64::MAX, |it| it.sequence);
        tx.keepalive_sequence = tx.keepalive_sequence.filter(|sequence| *sequence >= unsent);
        // The first unsent message may be partially sent. It starts again, and the peer forgets the
        // first part.
        if let Some(first) = queue.unsent.front_mut() {
            first.fragment = 0;
        }
        if tx.is_pending() {
            // A message may have been queued since the state machine checked.
            self.path.set_event(PathEvent::Wanted);
        }
        let path = link.as_ref().map(|link| link.path());
        tx.idle_path = path.filter(|_| !tx.is_pending());
        drop(guard);
        drop(link);
        drop(cancelled);
        self.forget_map();
        self.node.stats.inc(Counter::ConnReset);
        pr_change_ratelimited!(self.log_limit, "{}: disconnected\n", self.key);
    }
}
