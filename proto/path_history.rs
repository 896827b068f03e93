// SPDX-License-Identifier: GPL-2.0

//! Times and reasons that the table of paths shows: the last attempt, connect and reset of a path.
//!
//! The worker of the connection reports each change of state to [`PathHistory`], which is plain
//! data. Nothing here fails. Reasons have the numbers that Oracle's `rds-info` has words for:
//! `Documentation/abi.md` lists them.

use super::connect::{
    Event,
    State, //
};

/// Reason for which a path was reset, or an attempt to connect failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// There was no reset, or nothing went wrong.
    #[default]
    None = 0,
    UserReset = 1,
    ConnectFailed = 5,
    KeepaliveTimeout = 6,
    ReconnectTimeout = 7,
    QpEvent = 11,
    RequestWhileUp = 12,
    RouteError = 20,
    AddressError = 21,
    /// There was no answer to the request, or the device was removed.
    ConnectError = 22,
    /// RDS on the peer has rejected the request.
    Refused = 23,
    /// The peer's CM has rejected the request or the reply.
    Rejected = 24,
    AddressChange = 25,
    Disconnected = 26,
    PostRecvFailed = 28,
    HeaderMissing = 30,
    HeaderCorrupted = 31,
    FragmentMismatch = 32,
    RecvCompletionError = 33,
    SendCompletionError = 34,
    PostSendFailed = 35,
    TcpClosed = 40,
    TcpSendFailed = 41,
}

impl DropReason {
    /// All reasons, ordered by their numbers.
    pub(crate) const ALL: [DropReason; 23] = [
        DropReason::None,
        DropReason::UserReset,
        DropReason::ConnectFailed,
        DropReason::KeepaliveTimeout,
        DropReason::ReconnectTimeout,
        DropReason::QpEvent,
        DropReason::RequestWhileUp,
        DropReason::RouteError,
        DropReason::AddressError,
        DropReason::ConnectError,
        DropReason::Refused,
        DropReason::Rejected,
        DropReason::AddressChange,
        DropReason::Disconnected,
        DropReason::PostRecvFailed,
        DropReason::HeaderMissing,
        DropReason::HeaderCorrupted,
        DropReason::FragmentMismatch,
        DropReason::RecvCompletionError,
        DropReason::SendCompletionError,
        DropReason::PostSendFailed,
        DropReason::TcpClosed,
        DropReason::TcpSendFailed,
    ];

    /// Returns the number in the table.
    pub(crate) const fn number(self) -> u32 {
        self as u32
    }

    /// Returns the reason whose number is `number`.
    pub(crate) fn from_number(number: u32) -> Option<DropReason> {
        DropReason::ALL.into_iter().find(|x| x.number() == number)
    }

    /// Returns the reason of the failure that `rds_error` traces as `what`. `None` if that is
    /// unknown, and then the event that follows decides.
    pub(crate) fn of_failure(what: &str, is_stream: bool) -> Option<DropReason> {
        Some(match what {
            "reset" => DropReason::UserReset,
            "other path" => DropReason::RequestWhileUp,
            "connect" | "reply" => DropReason::ConnectFailed,
            "keepalive timeout" => DropReason::KeepaliveTimeout,
            "queue pair" | "completion order" | "completion timeout" | "quiesce timeout" => {
                DropReason::QpEvent
            }
            "route error" => DropReason::RouteError,
            "address error" => DropReason::AddressError,
            "no answer" | "connect error" | "device removal" => DropReason::ConnectError,
            "refused" => DropReason::Refused,
            "rejected" => DropReason::Rejected,
            "address change" | "address moved" => DropReason::AddressChange,
            "receive memory" => DropReason::PostRecvFailed,
            "receive" | "receive opcode" => DropReason::RecvCompletionError,
            "send" | "post" | "frame" if is_stream => DropReason::TcpSendFailed,
            "send" => DropReason::SendCompletionError,
            "send memory" | "post" | "frame" | "operation" => DropReason::PostSendFailed,
            _ => return None,
        })
    }

    /// Returns the reason of an event that ends a link or an attempt, if no failure was noted.
    pub(crate) const fn of_event(event: Event, is_stream: bool) -> DropReason {
        match event {
            Event::Request => DropReason::RequestWhileUp,
            Event::Fault => DropReason::SendCompletionError,
            Event::Rejected | Event::Lost if is_stream => DropReason::TcpClosed,
            Event::Rejected => DropReason::Rejected,
            Event::Lost => DropReason::Disconnected,
            Event::Moved => DropReason::AddressChange,
            Event::Timer => DropReason::ReconnectTimeout,
            // Nobody can read the table after `Stop`.
            Event::Wanted
            | Event::Step
            | Event::Prepared
            | Event::Established
            | Event::Idle
            | Event::Stop => DropReason::None,
        }
    }
}

/// Loss of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reset {
    at: i64,
    reason: DropReason,
}

/// Times of a path in seconds since 1970. 0: it has not happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathTimes {
    /// Last attempt of this node to connect.
    pub(crate) attempted: i64,
    pub(crate) connected: i64,
    pub(crate) reset: i64,
    /// Attempts of this node since the reset.
    pub(crate) attempts: u32,
    /// Reason of the reset, or of the last attempt of either node if that has failed since.
    pub(crate) reason: DropReason,
}

/// Record of the changes of a path.
///
/// A path that rests is shown as connected, with what was shown before its last reset. So the time
/// of the reset is never later than that of the connect while the path looks connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathHistory {
    attempted: i64,
    connected: i64,
    attempts: u32,
    reset: Reset,
    /// Reset and attempts that were shown before the last reset.
    before: (Reset, u32),
    /// Reason of the last attempt that failed since the path was up.
    failed: Option<DropReason>,
}

impl PathHistory {
    /// Creates the history of a path that was never needed.
    pub(crate) const fn new() -> Self {
        const NEVER: Reset = Reset {
            at: 0,
            reason: DropReason::None,
        };
        PathHistory {
            attempted: 0,
            connected: 0,
            attempts: 0,
            reset: NEVER,
            before: (NEVER, 0),
            failed: None,
        }
    }

    /// Records a change of state at the time `now`, in seconds since 1970. `reason` matters if the
    /// change ends a link or an attempt.
    pub(crate) fn note(&mut self, from: State, to: State, reason: DropReason, now: i64) {
        if from == to {
            return;
        }
        match (from, to) {
            (State::Up, _) => {
                self.before = (self.reset, self.attempts);
                self.reset = Reset { at: now, reason };
                self.attempts = 0;
            }
            (
                State::Preparing | State::Connecting | State::Accepting,
                State::Down | State::Waiting,
            ) => self.failed = Some(reason),
            _ => {}
        }
        match to {
            State::Preparing => {
                self.attempted = now;
                self.attempts = self.attempts.saturating_add(1);
            }
            State::Up => {
                self.connected = now;
                self.failed = None;
            }
            _ => {}
        }
    }

    /// Returns what the table shows. `rests`: the path is shown as connected though it is down.
    pub(crate) fn times(&self, rests: bool) -> PathTimes {
        let (reset, attempts) = match rests {
            true => self.before,
            false => (self.reset, self.attempts),
        };
        PathTimes {
            attempted: self.attempted,
            connected: self.connected,
            reset: reset.at,
            attempts,
            reason: self.failed.unwrap_or(reset.reason),
        }
    }
}
