// SPDX-License-Identifier: GPL-2.0
//! The sending end of a stream.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use crate::control::{Control, Plan, Totals};
use crate::sizes::Sizes;
use rds_content::{Hash, Key};

/// Time to wait for an answer before the next greeting or ping. A greeting is lost that came before
/// the receiver bound its port, and an answer to a ping may be dropped.
pub(crate) const REPEAT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no answer yet; the next greeting is due at this time.
    Greeting(Instant),
    Data,
    /// All messages are sent, and not yet confirmed.
    Unconfirmed,
    Confirmed,
}

/// The sending end of a stream.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: SocketAddr,
    /// The kernel refused the last message because the destination is congested.
    pub(crate) congested: bool,
    plan: Plan,
    sizes: Sizes,
    key: Key,
    state: State,
    sent: u64,
    bytes: u64,
    hash: Hash,
    /// The message to send next, if the kernel refused it before.
    message: Vec<u8>,
    prepared: bool,
}

impl Outgoing {
    pub(crate) fn new(key: Key, plan: Plan, sizes: Sizes, to: SocketAddr) -> Self {
        Outgoing {
            to,
            congested: false,
            plan,
            sizes,
            key,
            state: State::Greeting(Instant::now()),
            sent: 0,
            bytes: 0,
            hash: Hash::default(),
            message: Vec::new(),
            prepared: false,
        }
    }

    /// Returns the time of the next greeting.
    pub(crate) fn greeting_due(&self) -> Option<Instant> {
        match self.state {
            State::Greeting(due) => Some(due),
            _ => None,
        }
    }

    /// Returns the greeting, if it is due. The next one is due [`REPEAT_INTERVAL`] later.
    pub(crate) fn greeting(&mut self, now: Instant) -> Option<Control> {
        match self.state {
            State::Greeting(due) if now >= due => {
                self.state = State::Greeting(now + REPEAT_INTERVAL);
                Some(Control::Hello(self.plan))
            }
            _ => None,
        }
    }

    /// Returns `true` if there is data that may be sent.
    pub(crate) fn has_data(&self) -> bool {
        self.state == State::Data
    }

    /// Returns the message to send.
    pub(crate) fn message(&mut self) -> &[u8] {
        if !self.prepared {
            self.message.resize(self.sizes.size(self.key, self.sent), 0);
            self.key.fill(self.sent, &mut self.message);
            self.prepared = true;
        }
        &self.message
    }

    /// Notes that the kernel accepted the message.
    pub(crate) fn message_sent(&mut self) {
        self.hash.update(&self.message);
        self.bytes += self.message.len() as u64;
        self.sent += 1;
        self.prepared = false;
        if self.sent == self.plan.count {
            self.state = State::Unconfirmed;
        }
    }

    /// Handles the receiver's answer to a greeting. Returns `true` if it is the first answer.
    pub(crate) fn welcomed(&mut self, theirs: Plan) -> Result<bool> {
        check_plans(self.plan, theirs)?;
        let first = matches!(self.state, State::Greeting(_));
        if first {
            self.state = State::Data;
        }
        Ok(first)
    }

    /// Handles the receiver's report that all messages came.
    pub(crate) fn confirmed(&mut self, received: Totals) -> Result<()> {
        let sent = self.totals();
        if self.state != State::Unconfirmed || received != sent {
            bail!("the receiver confirmed {received:?} when {sent:?} were sent");
        }
        self.state = State::Confirmed;
        Ok(())
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state == State::Confirmed
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            messages: self.sent,
            bytes: self.bytes,
            hash: self.hash.value(),
        }
    }

    /// Describes the event that it waits for.
    pub(crate) fn status(&self) -> String {
        let doing = match self.state {
            State::Greeting(_) => "no receiver has answered",
            State::Data if self.congested => "the destination is congested",
            State::Data => "the send buffer is full",
            State::Unconfirmed => "the receiver has not confirmed them",
            State::Confirmed => "confirmed",
        };
        format!(
            "to {}: {} of {} sent, {doing}",
            self.to, self.sent, self.plan.count
        )
    }
}

/// Fails if the two ends would not agree on the messages.
pub(crate) fn check_plans(ours: Plan, theirs: Plan) -> Result<()> {
    if ours.seed != theirs.seed {
        bail!(
            "--seed is {} here and {} at the other end",
            ours.seed,
            theirs.seed
        );
    }
    if ours.count != theirs.count {
        bail!(
            "--count is {} here and {} at the other end",
            ours.count,
            theirs.count
        );
    }
    if ours.sizes != theirs.sizes {
        bail!("--sizes is not the same at the other end");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::Verifier;

    const PLAN: Plan = Plan {
        seed: 5,
        count: 30,
        sizes: 1,
    };

    fn outgoing() -> (Outgoing, Key) {
        let (from, to) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
        let key = Key::new(PLAN.seed, from, to);
        (Outgoing::new(key, PLAN, Sizes::Boundary, to), key)
    }

    #[test]
    fn sent_messages_verify_and_are_confirmed() {
        let (mut out, key) = outgoing();
        let mut verifier = Verifier::new(key, Sizes::Boundary, PLAN.count);
        assert!(out.welcomed(PLAN).unwrap());
        while out.has_data() {
            let refused = out.message().to_vec();
            assert_eq!(out.message(), refused);
            verifier.accept(out.message(), false).unwrap();
            out.message_sent();
        }
        assert!(verifier.is_complete());
        assert!(!out.is_finished());
        out.confirmed(verifier.totals()).unwrap();
        assert!(out.is_finished());
    }

    #[test]
    fn greets_until_answered() {
        let (mut out, _) = outgoing();
        let start = out.greeting_due().unwrap();
        assert_eq!(out.greeting(start), Some(Control::Hello(PLAN)));
        assert_eq!(out.greeting(start), None);
        let again = out.greeting_due().unwrap();
        assert_eq!(out.greeting(again), Some(Control::Hello(PLAN)));
        assert!(!out.has_data());
        assert!(out.welcomed(PLAN).unwrap());
        assert!(out.has_data());
        assert_eq!(out.greeting_due(), None);
        assert!(!out.welcomed(PLAN).unwrap());
    }

    #[test]
    fn different_plans_are_refused() {
        for plan in [
            Plan { seed: 6, ..PLAN },
            Plan { count: 31, ..PLAN },
            Plan { sizes: 2, ..PLAN },
        ] {
            let (mut out, _) = outgoing();
            assert!(out.welcomed(plan).is_err(), "{plan:?}");
        }
    }

    #[test]
    fn wrong_confirmations_are_refused() {
        let (mut out, _) = outgoing();
        out.welcomed(PLAN).unwrap();
        assert!(out.confirmed(out.totals()).is_err(), "not all sent");
        while out.has_data() {
            out.message();
            out.message_sent();
        }
        let good = out.totals();
        for bad in [
            Totals {
                messages: 29,
                ..good
            },
            Totals { bytes: 0, ..good },
            Totals {
                hash: !good.hash,
                ..good
            },
        ] {
            assert!(out.confirmed(bad).is_err(), "{bad:?}");
        }
        out.confirmed(good).unwrap();
        assert!(out.confirmed(good).is_err(), "twice");
    }
}
