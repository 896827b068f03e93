// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/path_history.rs`.

use crate::proto::connect::*;
use crate::proto::path_history::*;

/// Texts of Oracle's `rds-info` for the numbers that are used here.
const WORDS: [(DropReason, u32, &str); 23] = [
    (DropReason::None, 0, "--"),
    (DropReason::UserReset, 1, "user reset"),
    (DropReason::ConnectFailed, 5, "conn_connect failure"),
    (DropReason::KeepaliveTimeout, 6, "hb timeout"),
    (DropReason::ReconnectTimeout, 7, "reconnect timeout"),
    (DropReason::QpEvent, 11, "qp event"),
    (
        DropReason::RequestWhileUp,
        12,
        "incoming REQ in CONN_UP state",
    ),
    (DropReason::RouteError, 20, "ROUTE_ERROR event"),
    (DropReason::AddressError, 21, "ADDR_ERROR event"),
    (
        DropReason::ConnectError,
        22,
        "CONNECT_ERROR or UNREACHABLE or DEVICE_REMOVE event",
    ),
    (DropReason::Refused, 23, "CONSUMER_DEFINED reject"),
    (DropReason::Rejected, 24, "REJECTED event"),
    (DropReason::AddressChange, 25, "ADDR_CHANGE event"),
    (DropReason::Disconnected, 26, "DISCONNECTED event"),
    (DropReason::PostRecvFailed, 28, "post_recv failure"),
    (DropReason::HeaderMissing, 30, "no header in incoming msg"),
    (
        DropReason::HeaderCorrupted,
        31,
        "corrupted header in incoming msg",
    ),
    (DropReason::FragmentMismatch, 32, "fragment header mismatch"),
    (DropReason::RecvCompletionError, 33, "recv completion error"),
    (DropReason::SendCompletionError, 34, "send completion error"),
    (DropReason::PostSendFailed, 35, "post_send failure"),
    (DropReason::TcpClosed, 40, "sk_state to TCP_CLOSE"),
    (DropReason::TcpSendFailed, 41, "tcp_send failure"),
];

/// Returns the history of a path that takes these states at the seconds 1, 2 and so on.
fn after(steps: &[(State, DropReason)]) -> PathHistory {
    let (mut history, mut from) = (PathHistory::new(), State::Down);
    for (now, &(to, reason)) in (1..).zip(steps) {
        history.note(from, to, reason, now);
        from = to;
    }
    history
}

const UP: [(State, DropReason); 3] = [
    (State::Preparing, DropReason::None),
    (State::Connecting, DropReason::None),
    (State::Up, DropReason::None),
];

/// Returns the times after `UP` and these states.
fn since_up(steps: &[(State, DropReason)]) -> PathTimes {
    after(&[&UP, steps].concat()).times(false)
}

fn times(
    (attempted, connected, reset): (i64, i64, i64),
    attempts: u32,
    reason: DropReason,
) -> PathTimes {
    PathTimes {
        attempted,
        connected,
        reset,
        attempts,
        reason,
    }
}

#[test]
fn numbers_are_those_of_the_established_tool() {
    assert_eq!(WORDS.map(|(reason, ..)| reason), DropReason::ALL);
    for (reason, number, words) in WORDS {
        assert_eq!(reason.number(), number, "{words}");
        assert_eq!(DropReason::from_number(number), Some(reason));
    }
    assert_eq!(DropReason::from_number(2), None);
}

#[test]
fn failures_have_reasons() {
    let both = [
        ("reset", DropReason::UserReset),
        ("other path", DropReason::RequestWhileUp),
        ("connect", DropReason::ConnectFailed),
        ("reply", DropReason::ConnectFailed),
        ("keepalive timeout", DropReason::KeepaliveTimeout),
        ("queue pair", DropReason::QpEvent),
        ("completion order", DropReason::QpEvent),
        ("completion timeout", DropReason::QpEvent),
        ("quiesce timeout", DropReason::QpEvent),
        ("route error", DropReason::RouteError),
        ("address error", DropReason::AddressError),
        ("no answer", DropReason::ConnectError),
        ("connect error", DropReason::ConnectError),
        ("device removal", DropReason::ConnectError),
        ("refused", DropReason::Refused),
        ("rejected", DropReason::Rejected),
        ("address change", DropReason::AddressChange),
        ("address moved", DropReason::AddressChange),
        ("receive memory", DropReason::PostRecvFailed),
        ("receive", DropReason::RecvCompletionError),
        ("receive opcode", DropReason::RecvCompletionError),
    ];
    for (what, reason) in both {
        for is_stream in [false, true] {
            assert_eq!(DropReason::of_failure(what, is_stream), Some(reason));
        }
    }
    for (what, rdma, tcp) in [
        (
            "send",
            DropReason::SendCompletionError,
            Some(DropReason::TcpSendFailed),
        ),
        (
            "post",
            DropReason::PostSendFailed,
            Some(DropReason::TcpSendFailed),
        ),
        (
            "frame",
            DropReason::PostSendFailed,
            Some(DropReason::TcpSendFailed),
        ),
        (
            "operation",
            DropReason::PostSendFailed,
            Some(DropReason::PostSendFailed),
        ),
    ] {
        assert_eq!(DropReason::of_failure(what, false), Some(rdma));
        assert_eq!(DropReason::of_failure(what, true), tcp);
    }
    let memory = DropReason::of_failure("send memory", false);
    assert_eq!(memory, Some(DropReason::PostSendFailed));
    assert_eq!(DropReason::of_failure("flush", false), None);
}

#[test]
fn events_have_reasons() {
    for (event, rdma, tcp) in [
        (Event::Wanted, DropReason::None, DropReason::None),
        (
            Event::Request,
            DropReason::RequestWhileUp,
            DropReason::RequestWhileUp,
        ),
        (Event::Step, DropReason::None, DropReason::None),
        (Event::Prepared, DropReason::None, DropReason::None),
        (Event::Established, DropReason::None, DropReason::None),
        (
            Event::Fault,
            DropReason::SendCompletionError,
            DropReason::SendCompletionError,
        ),
        (Event::Rejected, DropReason::Rejected, DropReason::TcpClosed),
        (
            Event::Moved,
            DropReason::AddressChange,
            DropReason::AddressChange,
        ),
        (Event::Lost, DropReason::Disconnected, DropReason::TcpClosed),
        (
            Event::Timer,
            DropReason::ReconnectTimeout,
            DropReason::ReconnectTimeout,
        ),
        (Event::Idle, DropReason::None, DropReason::None),
        (Event::Stop, DropReason::None, DropReason::None),
    ] {
        assert_eq!(DropReason::of_event(event, false), rdma, "{event:?}");
        assert_eq!(DropReason::of_event(event, true), tcp, "{event:?}");
    }
}

#[test]
fn path_that_was_never_needed() {
    assert_eq!(after(&[]).times(false), PathTimes::default());
    assert_eq!(PathHistory::new(), PathHistory::default());
}

#[test]
fn path_that_is_up() {
    assert_eq!(since_up(&[]), times((1, 3, 0), 1, DropReason::None));
}

#[test]
fn attempts_of_the_peer_are_not_counted() {
    let steps = [State::Accepting, State::Up].map(|state| (state, DropReason::None));
    assert_eq!(
        after(&steps).times(false),
        times((0, 2, 0), 0, DropReason::None)
    );
}

#[test]
fn attempts_that_fail() {
    let steps = [
        (State::Preparing, DropReason::None),
        (State::Waiting, DropReason::AddressError),
        (State::Preparing, DropReason::None),
        (State::Connecting, DropReason::None),
        (State::Waiting, DropReason::ConnectError),
    ];
    let seen = [1, 2, 5].map(|len| after(&steps[..len]).times(false));
    let wanted = [
        times((1, 0, 0), 1, DropReason::None),
        times((1, 0, 0), 1, DropReason::AddressError),
        times((3, 0, 0), 2, DropReason::ConnectError),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn reset_is_shown_at_once_if_the_path_is_needed() {
    let steps = [
        (State::Waiting, DropReason::UserReset),
        (State::Preparing, DropReason::None),
        (State::Waiting, DropReason::Rejected),
        (State::Preparing, DropReason::None),
        (State::Connecting, DropReason::None),
        (State::Up, DropReason::None),
    ];
    let seen = [1, 2, 3, 6].map(|len| since_up(&steps[..len]));
    let wanted = [
        times((1, 3, 4), 0, DropReason::UserReset),
        times((5, 3, 4), 1, DropReason::UserReset),
        times((5, 3, 4), 1, DropReason::Rejected),
        // The reason is that of the reset again.
        times((7, 9, 4), 2, DropReason::UserReset),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn lost_path_reconnects_at_once() {
    let seen = since_up(&[(State::Preparing, DropReason::Disconnected)]);
    assert_eq!(seen, times((4, 3, 4), 1, DropReason::Disconnected));
    let seen = since_up(&[(State::Accepting, DropReason::RequestWhileUp)]);
    assert_eq!(seen, times((1, 3, 4), 0, DropReason::RequestWhileUp));
}

#[test]
fn path_that_rests_is_shown_as_it_was() {
    let steps = [
        (State::Down, DropReason::KeepaliveTimeout),
        (State::Preparing, DropReason::None),
        (State::Connecting, DropReason::None),
        (State::Up, DropReason::None),
    ];
    let rests = after(&[&UP, &steps[..1]].concat());
    assert_eq!(rests.times(true), since_up(&[]));
    // Its messages were removed while it waited for another attempt.
    let waited = [
        (State::Waiting, DropReason::KeepaliveTimeout),
        (State::Down, DropReason::None),
    ];
    let rests = after(&[&UP, &waited[..]].concat());
    assert_eq!(rests.times(true), since_up(&[]));
    let reset = times((1, 3, 4), 0, DropReason::KeepaliveTimeout);
    assert_eq!(rests.times(false), reset);
    let needed = times((5, 3, 4), 1, DropReason::KeepaliveTimeout);
    assert_eq!(since_up(&steps[..2]), needed);
    let again = times((5, 7, 4), 1, DropReason::KeepaliveTimeout);
    assert_eq!(since_up(&steps), again);
}

/// A path that is up, or rests, was not reset after it was connected.
#[test]
fn reset_is_not_later_than_the_connect() {
    for code in 0..6u32.pow(6) {
        let (mut history, mut from) = (PathHistory::new(), State::Down);
        for step in 0..6 {
            let number = code / 6u32.pow(step) % 6;
            let to = State::from_number(number).expect("there are six states");
            history.note(from, to, DropReason::Disconnected, step.into());
            let rests = to == State::Down;
            if to == State::Up || rests {
                let times = history.times(rests);
                assert!(times.reset <= times.connected, "{code}, {step}");
            }
            from = to;
        }
    }
}
