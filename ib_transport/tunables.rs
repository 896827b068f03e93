// SPDX-License-Identifier: GPL-2.0

//! Settings of this transport that root may change while the module is loaded. Changes apply to new
//! connections, except that the pool limit and the completion timeout apply at once.

use crate::{
    kapi::{
        rdma::{
            DeviceCaps,
            QpConfig,
            MAX_UNSIGNALED, //
        },
        sysctl::{
            Entry,
            Setting,
            Settings, //
        }, //
    },
    proto::completion_watchdog::WatchdogTimeout,
    recv_pool::Limit, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Default depths of the send and receive queues, before the limits of the device.
///
/// Each queue gets one more entry, to drain it, and devices round up to powers of two; soft-RoCE
/// adds one before that. Both queues together fit into 512 completions. A peer with C RDS can have
/// 256 sends in flight.
const MAX_SEND_WR: c_int = 126;
const MAX_RECV_WR: c_int = 382;

/// Permitted queue depths. They are limited because whole rings are posted and completed under a
/// lock.
const WRS: core::ops::RangeInclusive<c_int> = 16..=4096;

/// Maximum number of retries that a device supports: a field of three bits.
const MOST_RETRIES: u8 = 7;

/// The settings in `/proc/sys/net/rds/ib`, and parameters that are fixed when the module is loaded.
pub(crate) struct IbTunables {
    max_send_wr: Setting,
    max_recv_wr: Setting,
    /// Minimum number of posted receives, limited by the depth of the receive queue. Values below
    /// the initial depth have no effect.
    min_recv_wr: Setting,
    /// At least one of this many sends is signaled.
    max_unsignaled_wr: Setting,
    /// Memory limit of all pools. A change applies to existing pools as well.
    pool_limit: Arc<Limit>,
    /// 1 if new connections request flow control where the device does not need it, otherwise 0.
    flow_control: Setting,
    /// Time in seconds for which a send queue may make no progress; 0 for no limit.
    completion_timeout: Setting,
    /// Number of retries of the device when the peer does not answer.
    retry_count: u8,
}

impl IbTunables {
    /// Creates the default settings. `retries` is limited to what a device supports.
    pub(crate) fn new(pool_limit: Arc<Limit>, retries: u32) -> Self {
        Self {
            max_send_wr: Setting::new(MAX_SEND_WR, WRS),
            max_recv_wr: Setting::new(MAX_RECV_WR, WRS),
            min_recv_wr: Setting::new(0, 0..=*WRS.end()),
            // CAST: The number is small.
            max_unsignaled_wr: Setting::new(MAX_UNSIGNALED as c_int, 1..=64),
            pool_limit,
            flow_control: Setting::new(0, 0..=1),
            completion_timeout: Setting::new(120, 0..=3600),
            retry_count: u8::try_from(retries).map_or(MOST_RETRIES, |it| it.min(MOST_RETRIES)),
        }
    }

    /// Returns the configuration for queue pairs of a device with `caps`.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn qp_config(&self, caps: &DeviceCaps) -> QpConfig {
        // One more entry per queue is requested from the device, to drain it.
        let most = caps.max_qp_wr.saturating_sub(1);
        let completions = caps.max_cqe.saturating_sub(2);
        // If the completion queue is small, half of it is for receives.
        let max_send_wr = self.max_send_wr.count().min(most).min(completions / 2);
        QpConfig {
            max_send_wr,
            max_recv_wr: self
                .max_recv_wr
                .count()
                .min(most)
                .min(completions.saturating_sub(max_send_wr)),
            report_every: if caps.report_all_sends {
                1
            } else {
                self.max_unsignaled_wr.count().min(MAX_UNSIGNALED)
            },
            wait_for_reads: caps.reads_end_late,
        }
    }

    /// Returns the minimum number of posted receives.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn min_recv_wr(&self) -> u32 {
        self.min_recv_wr.count()
    }

    /// Returns the number of retries of the device when the peer does not answer.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn retry_count(&self) -> u8 {
        self.retry_count
    }

    /// Returns the timeout for a send queue that makes no progress.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn timeout(&self) -> WatchdogTimeout {
        WatchdogTimeout::new(self.completion_timeout.count())
    }

    /// Returns `true` if new connections request flow control where the device does not need it.
    ///
    /// # Context
    ///
    /// Any context.
    pub(super) fn controls_flow(&self) -> bool {
        self.flow_control.get() != 0
    }
}

impl Settings for IbTunables {
    const PATH: &'static CStr = c"net/rds/ib";

    fn each(&self) -> impl Iterator<Item = Entry<'_>> {
        [
            Entry::new(c"max_send_wr", &self.max_send_wr),
            Entry::new(c"max_recv_wr", &self.max_recv_wr),
            Entry::new(c"min_recv_wr", &self.min_recv_wr),
            Entry::new(c"max_unsignaled_wr", &self.max_unsignaled_wr),
            Entry::new(c"max_recv_allocation", self.pool_limit.setting()),
            Entry::new(c"flow_control", &self.flow_control),
            Entry::new(c"completion_timeout_secs", &self.completion_timeout),
        ]
        .into_iter()
    }
}
