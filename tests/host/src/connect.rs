// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/connect.rs`.

use crate::proto::connect::*;
use proptest::prelude::*;

pub(crate) const EVENTS: [Event; 12] = [
    Event::Wanted,
    Event::Request,
    Event::Step,
    Event::Prepared,
    Event::Established,
    Event::Fault,
    Event::Rejected,
    Event::Moved,
    Event::Lost,
    Event::Timer,
    Event::Idle,
    Event::Stop,
];

fn inputs(lower: bool, pending: bool, random: u32) -> Inputs {
    Inputs {
        lower,
        pending,
        for_peer: false,
        wait_ms: 0,
        random,
        timing: Timing::default(),
    }
}

/// Returns a machine in this state.
pub(crate) fn machine(state: State) -> Machine {
    let events: &[Event] = match state {
        State::Down => &[],
        State::Waiting => &[Event::Wanted, Event::Lost],
        State::Preparing => &[Event::Wanted],
        State::Connecting => &[Event::Wanted, Event::Prepared],
        State::Accepting => &[Event::Request],
        State::Up => &[Event::Request, Event::Established, Event::Timer],
    };
    let mut machine = Machine::new();
    for event in events {
        let outcome = machine.handle(*event, &inputs(true, true, 0));
        assert!(!outcome.ignored);
    }
    assert_eq!(machine.state(), state);
    machine
}

/// Returns the delay with which an outcome arms the timer.
fn delay(outcome: Outcome) -> Option<u32> {
    outcome.actions.into_iter().find_map(|action| match action {
        Action::Arm(delay) => Some(delay),
        _ => None,
    })
}

#[test]
fn backoff_doubles_up_to_its_limit_and_starts_over_once_proven() {
    for event in [Event::Lost, Event::Rejected, Event::Timer] {
        let mut machine = machine(State::Connecting);
        let mut delays = Vec::new();
        for _ in 0..12 {
            let latest = delay(
                machine
                    .clone()
                    .handle(event, &inputs(false, true, u32::MAX)),
            );
            let earliest = delay(machine.handle(event, &inputs(false, true, 0)));
            delays.push((earliest.unwrap(), latest.unwrap()));
            for event in [Event::Timer, Event::Step, Event::Prepared] {
                let _ = machine.handle(event, &inputs(false, true, 0));
            }
            assert_eq!(machine.state(), State::Connecting);
        }
        let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000];
        assert_eq!(delays, expected.map(|d| ((d / 2).max(1), d)));

        let _ = machine.handle(Event::Established, &inputs(false, true, 0));
        let _ = machine.handle(Event::Timer, &inputs(false, true, 0));
        let _ = machine.handle(Event::Request, &inputs(false, true, 0));
        let outcome = machine.handle(event, &inputs(false, true, 0));
        assert_eq!(delay(outcome), Some(1));
    }
}

#[test]
fn connections_that_break_at_once_back_off() {
    for (lower, expected) in [
        (true, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]),
        (
            false,
            [200, 200, 200, 200, 200, 200, 200, 200, 256, 512, 1000, 1000],
        ),
    ] {
        let inputs = inputs(lower, true, u32::MAX);
        let mut machine = Machine::new();
        let delays = expected.map(|_| {
            let _ = machine.handle(Event::Request, &inputs);
            let _ = machine.handle(Event::Established, &inputs);
            delay(machine.handle(Event::Lost, &inputs)).unwrap()
        });
        assert_eq!(delays, expected);
    }
}

#[test]
fn the_higher_node_leaves_the_lower_one_time() {
    for (random, expected) in [(0, 100), (u32::MAX / 2, 150), (u32::MAX, 200)] {
        let outcome = machine(State::Up).handle(Event::Lost, &inputs(false, true, random));
        assert_eq!(delay(outcome), Some(expected));
    }
}

/// Neither node yields, because the peer cannot know of the move. Failures on the old device do not
/// count.
#[test]
fn a_connection_whose_address_moved_starts_over_at_once() {
    for lower in [false, true] {
        let inputs = inputs(lower, true, u32::MAX);
        let outcome = machine(State::Up).handle(Event::Moved, &inputs);
        assert_eq!(outcome.state, State::Preparing);

        for state in [State::Preparing, State::Connecting, State::Accepting] {
            let mut machine = machine(state);
            for _ in 0..12 {
                let _ = machine.handle(Event::Lost, &inputs);
                let _ = machine.handle(Event::Timer, &inputs);
            }
            let outcome = machine.handle(Event::Moved, &inputs);
            assert_eq!((outcome.state, delay(outcome)), (State::Waiting, Some(1)));
        }
    }
}

/// A program's fault is no reason to delay either node.
#[test]
fn a_connection_that_a_fault_ends_reconnects_at_once() {
    for (lower, pending) in [(false, false), (false, true), (true, false), (true, true)] {
        let inputs = inputs(lower, pending, u32::MAX);
        let mut machine = Machine::new();
        for _ in 0..12 {
            let _ = machine.handle(Event::Request, &inputs);
            let _ = machine.handle(Event::Established, &inputs);
            let outcome = machine.handle(Event::Fault, &inputs);
            assert_eq!(outcome.state, State::Preparing);
            assert!(outcome.actions.eq([
                Action::GoneDown,
                Action::Teardown,
                Action::Prepare,
                Action::Arm(inputs.timing.watchdog_ms),
            ]));
        }
        let failed = machine.handle(
            Event::Lost,
            &Inputs {
                pending: true,
                for_peer: false,
                ..inputs
            },
        );
        assert_eq!(delay(failed), Some(1));
    }
}

/// A connection that was not proven backs off, however fast its address moves.
#[test]
fn an_address_that_moves_all_the_time_backs_off() {
    let inputs = inputs(false, true, u32::MAX);
    let mut machine = Machine::new();
    let delays = [(); 6].map(|()| {
        let _ = machine.handle(Event::Request, &inputs);
        let _ = machine.handle(Event::Established, &inputs);
        delay(machine.handle(Event::Moved, &inputs)).unwrap()
    });
    assert_eq!(delays, [1, 2, 4, 8, 16, 32]);
}

/// A crossing request is rejected once for each request of this node.
#[test]
fn a_peer_that_asks_again_is_accepted() {
    let inputs = inputs(true, true, 0);
    let mut machine = machine(State::Connecting);
    for _ in 0..2 {
        let outcome = machine.handle(Event::Request, &inputs);
        assert_eq!(outcome.state, State::Connecting);
        assert!(outcome.actions.eq([Action::Reject]));
        let outcome = machine.clone().handle(Event::Request, &inputs);
        assert_eq!(outcome.state, State::Accepting);
        let again = [Event::Rejected, Event::Timer, Event::Step, Event::Prepared];
        for event in again {
            assert!(!machine.handle(event, &inputs).ignored);
        }
        assert_eq!(machine.state(), State::Connecting);
    }
}

/// A request that the peer has abandoned may arrive after its reply, even if an earlier one has
/// arrived in time.
#[test]
fn a_late_request_does_not_end_the_connection() {
    for (lower, earlier) in [(false, 0), (true, 0), (true, 1)] {
        let inputs = inputs(lower, true, 0);
        let mut machine = machine(State::Connecting);
        for _ in 0..earlier {
            let _ = machine.handle(Event::Request, &inputs);
        }
        let _ = machine.handle(Event::Established, &inputs);
        let outcome = machine.handle(Event::Request, &inputs);
        assert_eq!(outcome.state, State::Up);
        assert!(outcome.actions.eq([Action::Reject]));
    }
}

/// The peer repeats its request, or sends it after all abandoned ones must have arrived, or was
/// accepted before.
#[test]
fn a_peer_that_starts_over_is_accepted() {
    use Event::{Established, Request, Timer};
    for (state, events) in [
        (State::Connecting, &[Established, Request][..]),
        (State::Connecting, &[Established, Timer]),
        (State::Connecting, &[Request, Request, Established]),
        (State::Accepting, &[Established]),
    ] {
        for lower in [false, true] {
            let inputs = inputs(lower, true, 0);
            let mut machine = machine(state);
            for event in events {
                let _ = machine.handle(*event, &inputs);
            }
            assert_eq!(machine.state(), State::Up);
            let outcome = machine.handle(Request, &inputs);
            assert_eq!(outcome.state, State::Accepting);
        }
    }
}

/// The user has too many attempts in progress. A lost link is reconnected at once.
#[test]
fn an_attempt_that_may_not_begin_is_looked_at_later() {
    for (random, expected) in [(0, 50), (u32::MAX, 100)] {
        let inputs = Inputs {
            wait_ms: 100,
            ..inputs(true, true, random)
        };
        for (state, event) in [(State::Down, Event::Wanted), (State::Waiting, Event::Timer)] {
            let mut machine = machine(state);
            let failed = machine.has_failed();
            assert!(machine.begins_attempt(event));
            for event in [event, Event::Timer, Event::Timer] {
                let outcome = machine.handle(event, &inputs);
                assert_eq!(outcome.state, State::Waiting);
                assert!(outcome.actions.eq([Action::Arm(expected)]));
            }
            // Nothing has failed meanwhile.
            assert_eq!(machine.has_failed(), failed);
            let outcome = machine.handle(
                Event::Timer,
                &Inputs {
                    wait_ms: 0,
                    ..inputs
                },
            );
            assert_eq!(outcome.state, State::Preparing);
        }
        let outcome = machine(State::Up).handle(Event::Lost, &inputs);
        assert_eq!(outcome.state, State::Preparing);
    }
    let begins = |state| EVENTS.map(|event| machine(state).begins_attempt(event));
    for state in State::ALL {
        let count = begins(state).iter().filter(|begins| **begins).count();
        assert_eq!(
            count,
            usize::from(matches!(state, State::Down | State::Waiting))
        );
    }
}

/// Each step of the preparation has a time limit of its own. A request of the peer needs no answer
/// before the local one is sent.
#[test]
fn steps_restart_the_timer() {
    for lower in [false, true] {
        let inputs = inputs(lower, true, 0);
        let mut machine = machine(State::Preparing);
        for _ in 0..3 {
            let outcome = machine.handle(Event::Step, &inputs);
            assert_eq!(outcome.state, State::Preparing);
            assert!(outcome.actions.eq([Action::Arm(inputs.timing.watchdog_ms)]));
            let accepted = machine.clone().handle(Event::Request, &inputs);
            assert_eq!(accepted.state, State::Accepting);
            let late = machine.clone().handle(Event::Timer, &inputs);
            assert_eq!(late.state, State::Waiting);
        }
        let outcome = machine.handle(Event::Prepared, &inputs);
        assert_eq!(outcome.state, State::Connecting);
        assert!(machine.handle(Event::Step, &inputs).ignored);
    }
}

#[test]
fn odd_timing_is_brought_into_range() {
    for (min, max, latest) in [(0, 0, 1), (50, 10, 50), (u32::MAX, u32::MAX, u32::MAX)] {
        let timing = Timing {
            backoff_min_ms: min,
            backoff_max_ms: max,
            watchdog_ms: 0,
        };
        let inputs = Inputs {
            timing,
            ..inputs(true, true, u32::MAX)
        };
        let mut machine = Machine::new();
        for _ in 0..2 {
            let _ = machine.handle(Event::Stop, &inputs);
            assert_eq!(delay(machine.handle(Event::Wanted, &inputs)), Some(1));
            assert_eq!(delay(machine.handle(Event::Lost, &inputs)), Some(latest));
        }
    }
}

proptest! {
    /// The actions match the driver's resources for any sequence of events.
    #[test]
    fn actions_fit(events in prop::collection::vec(
        (0usize..EVENTS.len(), any::<bool>(), any::<bool>(), any::<u32>()), 0..200)) {
        let mut machine = Machine::new();
        let (mut endpoint, mut up, mut timer) = (false, false, false);
        for (event, lower, pending, random) in events {
            if EVENTS[event] == Event::Timer {
                if !timer {
                    continue;
                }
                timer = false;
            }
            let outcome = machine.handle(EVENTS[event], &inputs(lower, pending, random));
            for action in outcome.actions {
                match action {
                    Action::Prepare | Action::Accept => {
                        prop_assert!(!endpoint);
                        endpoint = true;
                    }
                    Action::Connect => prop_assert!(endpoint && !up),
                    Action::Reject => prop_assert!(EVENTS[event] == Event::Request),
                    Action::Teardown => {
                        prop_assert!(endpoint && !up);
                        endpoint = false;
                    }
                    Action::Arm(delay) => {
                        prop_assert!(delay > 0);
                        timer = true;
                    }
                    Action::Disarm => timer = false,
                    Action::GoneUp => {
                        prop_assert!(endpoint && !up);
                        up = true;
                    }
                    Action::GoneDown => {
                        prop_assert!(up);
                        up = false;
                    }
                }
            }
            let state = machine.state();
            prop_assert_eq!(outcome.state, state);
            prop_assert_eq!(up, state == State::Up);
            prop_assert_eq!(endpoint, !matches!(state, State::Down | State::Waiting));
            // Each transient state has a timer.
            prop_assert!(timer || matches!(state, State::Down | State::Up));
            prop_assert!(!timer || state != State::Down);
        }
    }
}

#[test]
fn a_state_is_its_number() {
    let states: Vec<_> = (0..)
        .map_while(State::from_number)
        .map(State::name)
        .collect();
    assert_eq!(states.len(), 6);
    assert_eq!((states[0], states[5]), ("down", "up"));
    assert_eq!(
        State::from_number(State::Waiting as u32),
        Some(State::Waiting)
    );
}

fn for_peer() -> Inputs {
    Inputs {
        for_peer: true,
        ..inputs(true, true, u32::MAX)
    }
}

/// A lost peer of C may have something to send. This node has nothing, so it has no haste.
#[test]
fn an_attempt_for_the_peer_follows_a_loss() {
    let mut machine = machine(State::Up);
    let outcome = machine.handle(Event::Lost, &for_peer());
    assert_eq!((outcome.state, delay(outcome)), (State::Waiting, Some(1)));
    for _ in 0..1000 {
        assert_eq!(
            machine.handle(Event::Timer, &for_peer()).state,
            State::Preparing
        );
        let failed = machine.handle(Event::Lost, &for_peer());
        assert_eq!(failed.state, State::Waiting);
        assert!(delay(failed).unwrap() <= Timing::default().backoff_max_ms);
    }
}

#[test]
fn an_attempt_for_the_peer_waits_for_its_place() {
    let full = Inputs {
        wait_ms: 5000,
        ..for_peer()
    };
    let mut machine = machine(State::Waiting);
    // The backoff after a failure is not shortened.
    assert!(!machine.begins_attempt(Event::Wanted));
    let outcome = machine.handle(Event::Timer, &full);
    assert_eq!(
        (outcome.state, delay(outcome)),
        (State::Waiting, Some(5000))
    );
    assert!(machine.waits_for_place() && machine.begins_attempt(Event::Wanted));
    // The peer asks again, and there is still no place: the timer goes on.
    let outcome = machine.handle(Event::Wanted, &full);
    assert_eq!((outcome.state, delay(outcome)), (State::Waiting, None));
    assert!(machine.waits_for_place());
    // A message of this node needs none. If its user has no place, the time for that counts.
    let of_user = Inputs {
        wait_ms: 10,
        ..inputs(true, true, u32::MAX)
    };
    let mut waiting = machine.clone();
    for delay_ms in [Some(10), None] {
        let outcome = waiting.handle(Event::Wanted, &of_user);
        assert_eq!((outcome.state, delay(outcome)), (State::Waiting, delay_ms));
        assert!(!waiting.waits_for_place());
    }
    let outcome = machine.handle(Event::Wanted, &inputs(true, true, 0));
    assert_eq!(outcome.state, State::Preparing);
    assert!(!machine.waits_for_place());
}

/// A request of the peer does not keep a connection, whether it is up or waits.
#[test]
fn a_connection_for_the_peer_makes_room() {
    for state in [State::Up, State::Waiting] {
        let mut machine = machine(state);
        let _ = machine.handle(Event::Wanted, &for_peer());
        let idle = machine.handle(Event::Idle, &inputs(true, false, 0));
        assert_eq!(idle.state, State::Down);
        assert_eq!(idle.actions.last(), Some(Action::Disarm));
    }
}
