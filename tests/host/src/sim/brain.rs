// SPDX-License-Identifier: GPL-2.0

//! The connection logic of a node: the connection machine, or a sketch of the one in C RDS.

use crate::proto::connect::{Action, Event, Inputs, Machine, State};

/// The connection machine of a node.
#[derive(Clone)]
pub(super) enum Brain {
    /// The machine under test.
    Rust(Machine),
    /// Sketch of C RDS. While connecting, it rejects every request. While up, a request is rejected
    /// and breaks the connection. It always reconnects, even with nothing to send: the first time
    /// at once, then after a random backoff.
    C {
        /// The state, of those that C RDS has.
        state: State,
        /// The limit of the next backoff in milliseconds, 0 for none.
        backoff: u32,
    },
}

impl Brain {
    pub(super) fn rust() -> Self {
        Brain::Rust(Machine::new())
    }

    pub(super) fn c() -> Self {
        Brain::C {
            state: State::Down,
            backoff: 0,
        }
    }

    pub(super) fn state(&self) -> State {
        match self {
            Brain::Rust(machine) => machine.state(),
            Brain::C { state, .. } => *state,
        }
    }

    pub(super) fn handle(&mut self, event: Event, inputs: &Inputs) -> Vec<Action> {
        match self {
            Brain::Rust(machine) => machine.handle(event, inputs).actions.collect(),
            Brain::C { state, backoff } => handle_c(state, backoff, event, inputs),
        }
    }
}

fn handle_c(state: &mut State, backoff: &mut u32, event: Event, inputs: &Inputs) -> Vec<Action> {
    let watchdog = Action::Arm(inputs.timing.watchdog_ms);
    let (next, actions) = match (*state, event) {
        (State::Down, Event::Wanted) | (State::Waiting, Event::Timer) => {
            (State::Preparing, vec![Action::Prepare, watchdog])
        }
        (State::Down | State::Waiting, Event::Request) => {
            (State::Accepting, vec![Action::Accept, watchdog])
        }
        (State::Up, Event::Request) => {
            let retry = reconnect(backoff, inputs.random);
            let actions = vec![Action::Reject, Action::GoneDown, Action::Teardown, retry];
            (State::Waiting, actions)
        }
        (stay, Event::Request) => (stay, vec![Action::Reject]),
        (State::Preparing, Event::Step) => (State::Preparing, vec![watchdog]),
        (State::Preparing, Event::Prepared) => (State::Connecting, vec![Action::Connect, watchdog]),
        (State::Connecting | State::Accepting, Event::Established) => {
            *backoff = 0;
            (State::Up, vec![Action::Disarm, Action::GoneUp])
        }
        (State::Up, Event::Moved | Event::Lost | Event::Fault | Event::Rejected) => {
            let retry = reconnect(backoff, inputs.random);
            (
                State::Waiting,
                vec![Action::GoneDown, Action::Teardown, retry],
            )
        }
        (
            State::Preparing | State::Connecting | State::Accepting,
            Event::Moved | Event::Lost | Event::Fault | Event::Rejected | Event::Timer,
        ) => (
            State::Waiting,
            vec![Action::Teardown, reconnect(backoff, inputs.random)],
        ),
        (stay, _) => (stay, vec![]),
    };
    *state = next;
    actions
}

fn reconnect(backoff: &mut u32, random: u32) -> Action {
    if *backoff == 0 {
        *backoff = 1;
        return Action::Arm(1);
    }
    let delay = random % *backoff;
    *backoff = (*backoff * 2).min(1000);
    Action::Arm(delay.max(1))
}
