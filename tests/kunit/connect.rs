// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the connection state machine: usual ways to connect and disconnect.

use crate::proto::connect::*;
use kernel::prelude::*;

#[kunit_tests(rds_connect)]
mod suite {
    use super::*;

    #[test]
    fn active() {
        let mut machine = Machine::new();
        let watchdog = Action::Arm(5000);
        for (event, state, actions) in [
            (
                Event::Wanted,
                State::Preparing,
                &[Action::Prepare, watchdog][..],
            ),
            (Event::Step, State::Preparing, &[watchdog]),
            (
                Event::Prepared,
                State::Connecting,
                &[Action::Connect, watchdog],
            ),
            (
                Event::Established,
                State::Up,
                &[Action::Arm(1000), Action::GoneUp],
            ),
        ] {
            let outcome = machine.handle(event, &inputs(true, true));
            assert_eq!(outcome.state, state);
            assert!(outcome.actions.eq(actions.iter().copied()));
            assert!(!outcome.ignored);
        }
        let outcome = machine.handle(Event::Stop, &inputs(true, true));
        assert_eq!(outcome.state, State::Down);
        let actions = [Action::GoneDown, Action::Teardown, Action::Disarm];
        assert!(outcome.actions.eq(actions));
    }

    #[test]
    fn the_lower_address_has_the_right_of_way() {
        let outcome = connecting().handle(Event::Request, &inputs(true, true));
        assert_eq!(outcome.state, State::Connecting);
        assert!(outcome.actions.eq([Action::Reject]));
        let outcome = connecting().handle(Event::Request, &inputs(false, true));
        assert_eq!(outcome.state, State::Accepting);
        assert!(outcome
            .actions
            .eq([Action::Teardown, Action::Accept, Action::Arm(5000)]));
    }

    #[test]
    fn a_request_replaces_a_connection() {
        let mut machine = connecting();
        let _ = machine.handle(Event::Established, &inputs(true, true));
        // The first request arrives late and does not replace the connection.
        let outcome = machine.handle(Event::Request, &inputs(true, true));
        assert_eq!(outcome.state, State::Up);
        assert!(outcome.actions.eq([Action::Reject]));
        let outcome = machine.handle(Event::Request, &inputs(true, true));
        assert_eq!(outcome.state, State::Accepting);
        let actions = [
            Action::GoneDown,
            Action::Teardown,
            Action::Accept,
            Action::Arm(5000),
        ];
        assert!(outcome.actions.eq(actions));
    }

    #[test]
    fn without_messages_a_failure_ends_it() {
        let outcome = connecting().handle(Event::Lost, &inputs(true, false));
        assert_eq!(outcome.state, State::Down);
        assert!(outcome.actions.eq([Action::Teardown, Action::Disarm]));
    }

    #[test]
    fn an_idle_connection_is_closed_unless_something_was_queued() {
        for (pending, state) in [(true, State::Up), (false, State::Down)] {
            let mut machine = connecting();
            let _ = machine.handle(Event::Established, &inputs(true, true));
            assert_eq!(
                machine.handle(Event::Idle, &inputs(true, pending)).state,
                state
            );
        }
    }

    #[test]
    fn a_late_event_is_ignored() {
        let mut machine = Machine::new();
        let outcome = machine.handle(Event::Established, &inputs(true, true));
        assert!(outcome.ignored);
        assert_eq!(machine.state(), State::Down);
    }

    fn connecting() -> Machine {
        let mut machine = Machine::new();
        for event in [Event::Wanted, Event::Step, Event::Prepared] {
            let _ = machine.handle(event, &inputs(true, true));
        }
        machine
    }

    fn inputs(lower: bool, pending: bool) -> Inputs {
        Inputs {
            lower,
            pending,
            for_peer: false,
            wait_ms: 0,
            random: 0,
            timing: Timing::default(),
        }
    }
}
