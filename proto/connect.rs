// SPDX-License-Identifier: GPL-2.0

//! State machine of a connection: it comes up, is lost and comes up again.
//!
//! The machine has at most one endpoint, one timer and one state. The caller feeds it events and
//! carries out the returned [`Action`]s in their order, before the next event. Events of an
//! endpoint that has been torn down must not be fed.
//!
//! Two nodes may connect to each other at the same time. The node with the lower address has the
//! right of way: it rejects the request that crosses its own. The other node gives up its own
//! request and accepts. If the other node requests once more, it has not received the request that
//! it should have accepted, so its request is accepted.
//!
//! A CM may deliver the peer's reply before the request that the peer has given up for it. That
//! request must not end the connection. So a node whose request was accepted, lower or higher,
//! rejects one request as long as the connection is not proven.
//!
//! The lower node reconnects at once after an established connection breaks. The higher one leaves
//! it time to do so, but not forever: the lower node may have nothing to send, or may not have
//! noticed. A random backoff resolves the remaining collisions.
//!
//! A peer may have something to send and not ask for a connection again. Then the machine goes on
//! without an end, though nothing of this node waits. The caller limits such attempts, as thousands
//! of peers may be dead. One whose attempt has to wait begins at once if something of this node
//! waits. It is ended if there is no room for its connection.
//!
//! A local address that has moved to another device makes this node reconnect at once, lower or
//! higher: the peer cannot know.
//!
//! The backoff starts over once a connection has lasted [`PROVEN_MS`]. One that breaks earlier
//! counts as a failed attempt. Otherwise, if the peer sends the same erroneous frame after every
//! reconnect, the two nodes would reconnect as fast as they can.

/// Shortest time that the higher node waits after an established connection is lost.
const YIELD_MS: u32 = 100;

/// Range of the random part on top of [`YIELD_MS`].
const YIELD_SPREAD_MS: u32 = 100;

/// Time after which an established connection counts as a success.
const PROVEN_MS: u32 = 1000;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No connection, and none wanted.
    Down,
    /// The timer runs until the next attempt.
    Waiting,
    /// The local endpoint prepares its request, in steps that depend on the transport.
    Preparing,
    /// The local request is sent.
    Connecting,
    /// The peer's request is accepted, and its confirmation is outstanding.
    Accepting,
    /// Messages can be sent and received.
    Up,
}

impl State {
    /// All states, ordered by their numbers.
    pub(crate) const ALL: [State; 6] = [
        State::Down,
        State::Waiting,
        State::Preparing,
        State::Connecting,
        State::Accepting,
        State::Up,
    ];

    /// Returns the state whose number is `number`.
    pub(crate) fn from_number(number: u32) -> Option<State> {
        State::ALL.into_iter().find(|x| *x as u32 == number)
    }

    /// Returns the name for logs and traces.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            State::Down => "down",
            State::Waiting => "waiting",
            State::Preparing => "preparing",
            State::Connecting => "connecting",
            State::Accepting => "accepting",
            State::Up => "up",
        }
    }
}

/// Event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// There is something to send.
    Wanted,
    /// The peer requests a connection, and its request is valid.
    Request,
    /// The endpoint has begun another step of its preparation.
    Step,
    /// The endpoint can send its request.
    Prepared,
    /// The endpoint is connected.
    Established,
    /// The peer has refused an operation of a local program, which ends the endpoint.
    Fault,
    /// The peer has rejected the endpoint's request or reply.
    Rejected,
    /// The local address has left the endpoint's device.
    Moved,
    /// The endpoint, or an action on it, has failed in any other way.
    Lost,
    /// The timer has expired.
    Timer,
    /// No message has gone either way for a long time.
    Idle,
    /// The module or the device goes away. The caller feeds no further event.
    Stop,
}

impl Event {
    /// Returns the name in traces, for which `bindings/trace_names.awk` reads this function.
    #[allow(dead_code)] // Only host tests call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Event::Wanted => "wanted",
            Event::Request => "request",
            Event::Step => "step",
            Event::Prepared => "prepared",
            Event::Established => "established",
            Event::Fault => "fault",
            Event::Rejected => "rejected",
            Event::Moved => "moved",
            Event::Lost => "lost",
            Event::Timer => "timer",
            Event::Idle => "idle",
            Event::Stop => "stop",
        }
    }
}

/// Action that the caller has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Create an endpoint, which starts to prepare its request.
    Prepare,
    /// Prepare the endpoint for receiving and send the request.
    Connect,
    /// Make the endpoint from the peer's request, prepare it for receiving, and send the reply.
    Accept,
    /// Reject the peer's request.
    Reject,
    /// Destroy the endpoint. Nothing arrives through it any more when this has returned.
    ///
    /// A partially received message goes with it, see [`super::rx::RecvState::link_lost`]. There
    /// may be one even if the machine was never up, as the peer may be up before this node.
    Teardown,
    /// Start the timer, or restart it if it runs. The value is in milliseconds, and never 0.
    Arm(u32),
    /// Stop the timer.
    Disarm,
    /// Allow messages to be sent. Those that were sent before and not acknowledged go first.
    GoneUp,
    /// Stop sending messages; those not acknowledged will have to be sent again. Precedes the
    /// teardown, so that nothing is posted to an endpoint that is being destroyed.
    GoneDown,
}

/// Iterator over up to four actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    rest: [Option<Action>; 4],
}

impl Actions {
    fn new<const N: usize>(actions: [Action; N]) -> Self {
        const { assert!(N <= 4) };
        let mut rest = [None; 4];
        for (slot, action) in rest.iter_mut().zip(actions) {
            *slot = Some(action);
        }
        Actions { rest }
    }
}

impl Iterator for Actions {
    type Item = Action;

    fn next(&mut self) -> Option<Action> {
        let [first, rest @ ..] = self.rest;
        let [a, b, c] = rest;
        self.rest = [a, b, c, None];
        first
    }
}

/// Result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the machine has changed its state already and relies on the actions"]
pub(crate) struct Outcome {
    /// State after the event.
    pub(crate) state: State,
    /// Actions, in order.
    pub(crate) actions: Actions,
    /// The event made no sense in the state in which it came. Worth a trace, nothing else.
    pub(crate) ignored: bool,
}

/// Delays, which may differ from event to event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// First backoff.
    pub(crate) backoff_min_ms: u32,
    /// Longest backoff.
    pub(crate) backoff_max_ms: u32,
    /// Timeout of one step of the preparation or of the handshake.
    pub(crate) watchdog_ms: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            backoff_min_ms: 1,
            backoff_max_ms: 1000,
            watchdog_ms: 5000,
        }
    }
}

/// Values on which the reaction to an event depends, apart from the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs {
    /// The local address is lower than the peer's.
    pub(crate) lower: bool,
    /// Messages wait to be sent or to be acknowledged, or `for_peer`.
    pub(crate) pending: bool,
    /// Nothing of this node waits. The peer may have something to send, and may not ask again. So
    /// attempts have no haste, and together they may be limited.
    pub(crate) for_peer: bool,
    /// 0 if an attempt may begin now. Otherwise the time in milliseconds after which the connection
    /// looks again, see [`super::attempts`]. It does not concern an attempt right after a loss.
    pub(crate) wait_ms: u32,
    /// Uniformly distributed random number.
    pub(crate) random: u32,
    pub(crate) timing: Timing,
}

/// Connection state machine for one peer.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    state: State,
    /// Next backoff before it is clamped to its limits. 0 if nothing has failed since a connection
    /// was proven.
    backoff_ms: u32,
    /// A request may still arrive that the peer sent before it received the local one.
    may_cross: bool,
    /// The timer runs because an attempt for the peer was not allowed to begin.
    waits_for_place: bool,
}

impl Machine {
    /// Creates a connection that is down.
    pub(crate) const fn new() -> Self {
        Machine {
            state: State::Down,
            backoff_ms: 0,
            may_cross: false,
            waits_for_place: false,
        }
    }

    /// Returns the present state.
    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Returns `true` if an attempt has failed since a connection was proven.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.backoff_ms != 0
    }

    /// Returns `true` if the machine waits because an attempt for the peer was not allowed.
    #[inline]
    pub(crate) fn waits_for_place(&self) -> bool {
        self.waits_for_place
    }

    /// Returns `true` if [`Inputs::wait_ms`] matters for the event.
    #[inline]
    pub(crate) fn begins_attempt(&self, event: Event) -> bool {
        match (self.state, event) {
            (State::Down, Event::Wanted) | (State::Waiting, Event::Timer) => true,
            (State::Waiting, Event::Wanted) => self.waits_for_place,
            _ => false,
        }
    }

    /// Handles an event. Changes the state, and returns the actions to carry out.
    pub(crate) fn handle(&mut self, event: Event, inputs: &Inputs) -> Outcome {
        let watchdog = Action::Arm(inputs.timing.watchdog_ms.max(1));
        match (self.state, event) {
            (State::Down, Event::Wanted) => self.prepare(inputs),
            // Something of this node waits now, or the peer has just shown that it lives. If the
            // attempt has to wait all the same, the time of the one for the peer does not matter.
            (State::Waiting, Event::Wanted)
                if self.waits_for_place && (inputs.wait_ms == 0 || !inputs.for_peer) =>
            {
                self.prepare(inputs)
            }
            (
                State::Waiting
                | State::Preparing
                | State::Connecting
                | State::Accepting
                | State::Up,
                Event::Wanted,
            ) => self.stay([]),

            (State::Connecting, Event::Request) if inputs.lower && self.may_cross => {
                self.reject_crossing()
            }
            (State::Up, Event::Request) if self.may_cross => self.reject_crossing(),
            (State::Down | State::Waiting, Event::Request) => {
                self.enter(State::Accepting, [Action::Accept, watchdog])
            }
            // The local request is not sent yet, or has to yield, or the peer has started over.
            (State::Preparing | State::Connecting | State::Accepting, Event::Request) => self
                .enter(
                    State::Accepting,
                    [Action::Teardown, Action::Accept, watchdog],
                ),
            (State::Up, Event::Request) => self.enter(
                State::Accepting,
                [Action::GoneDown, Action::Teardown, Action::Accept, watchdog],
            ),

            (State::Preparing, Event::Step) => self.stay([watchdog]),
            (State::Preparing, Event::Prepared) => {
                self.may_cross = true;
                self.enter(State::Connecting, [Action::Connect, watchdog])
            }
            (state @ (State::Connecting | State::Accepting), Event::Established) => {
                // A crossing request may have been rejected, and followed by another one before the
                // peer received the local request.
                self.may_cross = state == State::Connecting;
                self.backoff_ms = self.backoff_ms.max(1);
                self.enter(State::Up, [Action::Arm(PROVEN_MS), Action::GoneUp])
            }

            (State::Up, Event::Timer) => {
                self.backoff_ms = 0;
                self.may_cross = false;
                self.stay([])
            }
            (State::Waiting, Event::Timer) if inputs.pending => self.prepare(inputs),
            (State::Waiting, Event::Timer) => self.enter(State::Down, []),
            (State::Waiting, Event::Idle) if !inputs.pending => {
                self.enter(State::Down, [Action::Disarm])
            }

            (
                State::Preparing | State::Connecting | State::Accepting,
                Event::Lost | Event::Fault | Event::Timer,
            )
            | (State::Connecting | State::Accepting, Event::Rejected) => {
                self.attempt_failed(inputs)
            }
            (State::Up, Event::Lost | Event::Rejected) => self.link_failed(inputs),

            (State::Preparing | State::Connecting | State::Accepting, Event::Moved) => {
                // Failures so far say nothing about the new device.
                self.backoff_ms = 0;
                self.attempt_failed(inputs)
            }
            // The peer works, and other programs on this connection have done nothing wrong: they
            // should not wait. Messages of the peer may wait, too, and its backoff may be long.
            (State::Up, Event::Fault) => {
                self.backoff_ms = 0;
                self.link_failed(&Inputs {
                    lower: true,
                    pending: true,
                    ..*inputs
                })
            }
            // The peer cannot know, so it is not left time to reconnect.
            (State::Up, Event::Moved) => self.link_failed(&Inputs {
                lower: true,
                ..*inputs
            }),
            // Messages that were queued since the idle check need the connection.
            (State::Up, Event::Idle) if !inputs.pending => self.enter(
                State::Down,
                [Action::GoneDown, Action::Teardown, Action::Disarm],
            ),
            (
                State::Down
                | State::Waiting
                | State::Preparing
                | State::Connecting
                | State::Accepting
                | State::Up,
                Event::Idle,
            ) => self.stay([]),

            (State::Down, Event::Stop) => self.stay([]),
            (State::Waiting, Event::Stop) => self.enter(State::Down, [Action::Disarm]),
            (State::Preparing | State::Connecting | State::Accepting, Event::Stop) => {
                self.enter(State::Down, [Action::Teardown, Action::Disarm])
            }
            (State::Up, Event::Stop) => self.enter(
                State::Down,
                [Action::GoneDown, Action::Teardown, Action::Disarm],
            ),

            (
                State::Down | State::Waiting | State::Connecting | State::Accepting | State::Up,
                Event::Step | Event::Prepared,
            )
            | (State::Down | State::Waiting | State::Preparing | State::Up, Event::Established)
            | (State::Down | State::Waiting | State::Preparing, Event::Rejected)
            | (State::Down | State::Waiting, Event::Moved | Event::Lost | Event::Fault)
            | (State::Down, Event::Timer) => Outcome {
                ignored: true,
                ..self.stay([])
            },
        }
    }

    fn stay<const N: usize>(&self, actions: [Action; N]) -> Outcome {
        Outcome {
            state: self.state,
            actions: Actions::new(actions),
            ignored: false,
        }
    }

    fn enter<const N: usize>(&mut self, state: State, actions: [Action; N]) -> Outcome {
        self.state = state;
        self.waits_for_place = false;
        self.stay(actions)
    }

    fn reject_crossing(&mut self) -> Outcome {
        self.may_cross = false;
        self.stay([Action::Reject])
    }

    fn prepare(&mut self, inputs: &Inputs) -> Outcome {
        if inputs.wait_ms > 0 {
            let delay = between((inputs.wait_ms / 2).max(1), inputs.wait_ms, inputs.random);
            let outcome = self.enter(State::Waiting, [Action::Arm(delay)]);
            self.waits_for_place = inputs.for_peer;
            return outcome;
        }
        let watchdog = Action::Arm(inputs.timing.watchdog_ms.max(1));
        self.enter(State::Preparing, [Action::Prepare, watchdog])
    }

    fn attempt_failed(&mut self, inputs: &Inputs) -> Outcome {
        if inputs.pending {
            let delay = Action::Arm(self.backoff(inputs));
            self.enter(State::Waiting, [Action::Teardown, delay])
        } else {
            self.enter(State::Down, [Action::Teardown, Action::Disarm])
        }
    }

    fn link_failed(&mut self, inputs: &Inputs) -> Outcome {
        let (down, teardown) = (Action::GoneDown, Action::Teardown);
        let proven = self.backoff_ms == 0;
        if !inputs.pending {
            return self.enter(State::Down, [down, teardown, Action::Disarm]);
        }
        if inputs.lower && proven && !inputs.for_peer {
            let watchdog = Action::Arm(inputs.timing.watchdog_ms.max(1));
            return self.enter(
                State::Preparing,
                [down, teardown, Action::Prepare, watchdog],
            );
        }
        let mut delay = 0;
        if !inputs.lower {
            let latest = YIELD_MS.saturating_add(YIELD_SPREAD_MS);
            delay = between(YIELD_MS, latest, inputs.random);
        }
        if !proven {
            delay = delay.max(self.backoff(inputs));
        }
        let timer = Action::Arm(delay.max(1));
        self.enter(State::Waiting, [down, teardown, timer])
    }

    /// Returns the delay until the next attempt: a random time between half of the backoff and all
    /// of it.
    fn backoff(&mut self, inputs: &Inputs) -> u32 {
        let min = inputs.timing.backoff_min_ms.max(1);
        let max = inputs.timing.backoff_max_ms.max(min);
        let backoff = self.backoff_ms.clamp(min, max);
        self.backoff_ms = backoff.saturating_mul(2);
        between((backoff / 2).max(1), backoff, inputs.random)
    }
}

/// Maps `random` evenly to `low..=high`.
fn between(low: u32, high: u32, random: u32) -> u32 {
    let span = u64::from(high.saturating_sub(low)).saturating_add(1);
    let part = u64::from(random).saturating_mul(span) >> 32;
    low.saturating_add(part as u32)
}
