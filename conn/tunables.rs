// SPDX-License-Identifier: GPL-2.0

//! Settings of connections in `/proc/sys/net/rds`, which root of the network
//! namespace may change at any time.

use crate::{
    kapi::sysctl::{
        Entry,
        Setting,
        Settings, //
    },
    proto::{
        connect::Timing,
        keepalive::KeepaliveLimit,
        tx::AckPolicy, //
    }, //
};
use kernel::prelude::*;

/// Maximum delay between two attempts to connect.
const LONGEST_DELAY_MS: c_int = 3_600_000;

/// Least maximum delay in a network namespace other than the initial one.
const OTHERS_MAX_DELAY_MS: u32 = 1000;

/// Maximum number of messages between two requests for an acknowledgement.
const MOST_PACKETS: c_int = 4096;

/// Default and maximum time that a peer may be silent while something waits for it.
const KEEPALIVE_SECS: c_int = 30;
const LONGEST_KEEPALIVE_SECS: c_int = 3600;

/// The settings in `/proc/sys/net/rds`.
pub(crate) struct Tunables {
    reconnect_min_delay_ms: Setting,
    reconnect_max_delay_ms: Setting,
    /// A lower maximum delay counts as this.
    least_max_delay_ms: u32,
    max_unacked_packets: Setting,
    max_unacked_bytes: Setting,
    ping_enable: Setting,
    keepalive_secs: Setting,
}

/// Creates a setting whose default is chosen by the protocol code.
fn chosen(value: u32, range: core::ops::RangeInclusive<c_int>) -> Setting {
    Setting::new(c_int::try_from(value).unwrap_or(c_int::MAX), range)
}

impl Tunables {
    /// Creates the settings of the initial network namespace, with their defaults.
    pub(crate) fn new() -> Self {
        Self::with_least_max_delay(0)
    }

    /// Creates the settings of another network namespace, whose root may be any user. Attempts must
    /// not follow each other at once there.
    pub(crate) fn of_other() -> Self {
        Self::with_least_max_delay(OTHERS_MAX_DELAY_MS)
    }

    fn with_least_max_delay(least_max_delay_ms: u32) -> Self {
        let (timing, policy) = (Timing::default(), AckPolicy::default());
        let delays = 1..=LONGEST_DELAY_MS;
        Self {
            reconnect_min_delay_ms: chosen(timing.backoff_min_ms, delays.clone()),
            reconnect_max_delay_ms: chosen(timing.backoff_max_ms, delays),
            least_max_delay_ms,
            max_unacked_packets: chosen(policy.max_unacked_packets, 0..=MOST_PACKETS),
            max_unacked_bytes: chosen(policy.max_unacked_bytes, 0..=c_int::MAX),
            ping_enable: Setting::new(1, 0..=1),
            keepalive_secs: Setting::new(KEEPALIVE_SECS, 0..=LONGEST_KEEPALIVE_SECS),
        }
    }

    /// Returns the delays before the next attempt to connect.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn timing(&self) -> Timing {
        let longest = self.reconnect_max_delay_ms.count();
        Timing {
            backoff_min_ms: self.reconnect_min_delay_ms.count(),
            backoff_max_ms: longest.max(self.least_max_delay_ms),
            ..Timing::default()
        }
    }

    /// Returns the limits after which the peer is asked for an acknowledgement.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn ack_policy(&self) -> AckPolicy {
        AckPolicy {
            max_unacked_packets: self.max_unacked_packets.count(),
            max_unacked_bytes: self.max_unacked_bytes.count(),
        }
    }

    /// Returns the time that a peer may be silent while something waits for it.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn keepalive(&self) -> KeepaliveLimit {
        KeepaliveLimit::new(self.keepalive_secs.count())
    }

    /// Returns `true` if pings are answered.
    ///
    /// # Context
    ///
    /// Any context.
    pub(crate) fn answers_pings(&self) -> bool {
        self.ping_enable.get() != 0
    }
}

#[cfg(rds_kunit)]
impl Tunables {
    /// Sets both delays, as root would.
    pub(crate) fn set_delays(&self, delay_ms: c_int) {
        self.reconnect_min_delay_ms.set(delay_ms);
        self.reconnect_max_delay_ms.set(delay_ms);
    }

    /// Turns the answers to pings off, as root would.
    pub(crate) fn answer_no_pings(&self) {
        self.ping_enable.set(0);
    }
}

impl Settings for Tunables {
    const PATH: &'static CStr = c"net/rds";

    fn each(&self) -> impl Iterator<Item = Entry<'_>> {
        let (shortest, longest) = (&self.reconnect_min_delay_ms, &self.reconnect_max_delay_ms);
        [
            Entry::new(c"reconnect_min_delay_ms", shortest).at_most(longest),
            Entry::new(c"reconnect_max_delay_ms", longest).at_least(shortest),
            Entry::new(c"max_unacked_packets", &self.max_unacked_packets),
            Entry::new(c"max_unacked_bytes", &self.max_unacked_bytes),
            Entry::new(c"ping_enable", &self.ping_enable),
            Entry::new(c"keepalive_secs", &self.keepalive_secs),
        ]
        .into_iter()
    }
}
