// SPDX-License-Identifier: GPL-2.0

//! What root may set of this transport while the module is loaded. New connections are made as it says
//! then; those that are there stay as they are.

use crate::kapi::{
    rdma::{DeviceCaps, QpConfig, MAX_UNREPORTED},
    sysctl::{Entry, Setting, Settings},
};
use crate::proto::completion_watchdog::WatchdogTimeout;
use crate::recv_pool::Limit;
use kernel::{prelude::*, sync::Arc};

/// Sends and receives that a queue pair has room for, before the device's own limits.
///
/// One of each comes on top, to drain the queues, and devices round up to powers of two: soft-RoCE
/// after adding one. Both queues together fit in 512 completions. A peer with C RDS can have 256 sends
/// under way.
const MAX_SEND_WR: c_int = 126;
const MAX_RECV_WR: c_int = 382;

/// What they may be set to. Whole rings are posted, and completed, under a lock.
const WRS: core::ops::RangeInclusive<c_int> = 16..=4096;

/// The most retries that a device can be told to make: three bits.
const MOST_RETRIES: u8 = 7;

/// The settings in `/proc/sys/net/rds/ib`, and what stays as it was when the module was loaded.
pub(crate) struct IbTunables {
    max_send_wr: Setting,
    max_recv_wr: Setting,
    /// Receives that are always posted, if the queue pair has room for them; fewer than at first are taken for that many.
    min_recv_wr: Setting,
    /// Of so many sends one reports its completion.
    max_unsignaled_wr: Setting,
    /// That of all pools, which counts for those that are there, too.
    pool_limit: Arc<Limit>,
    /// Whether new connections want their flow controlled where the device does not need it: 0 or 1.
    flow_control: Setting,
    /// How long a device may make no progress with what was posted, in seconds.
    completion_timeout: Setting,
    /// How often the device tries again when the peer does not answer.
    retry_count: u8,
}

impl IbTunables {
    /// As they are when the module is loaded. More retries than a device can make are taken for that many.
    pub(crate) fn new(pool_limit: Arc<Limit>, retries: u32) -> Self {
        Self {
            max_send_wr: Setting::new(MAX_SEND_WR, WRS),
            max_recv_wr: Setting::new(MAX_RECV_WR, WRS),
            min_recv_wr: Setting::new(0, 0..=*WRS.end()),
            // CAST: a small number.
            max_unsignaled_wr: Setting::new(MAX_UNREPORTED as c_int, 1..=64),
            pool_limit,
            flow_control: Setting::new(0, 0..=1),
            completion_timeout: Setting::new(120, 0..=3600),
            retry_count: u8::try_from(retries).map_or(MOST_RETRIES, |it| it.min(MOST_RETRIES)),
        }
    }

    /// How queue pairs of a device are made. Any context.
    pub(super) fn qp_config(&self, caps: &DeviceCaps) -> QpConfig {
        // One of each is asked for on top.
        let most = caps.max_qp_wr.saturating_sub(1);
        let completions = caps.max_cqe.saturating_sub(2);
        // Where a queue has room for few completions, half of them are for receives.
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
                self.max_unsignaled_wr.count().min(MAX_UNREPORTED)
            },
            wait_for_reads: caps.reads_end_late,
        }
    }

    /// Receives that are always posted. Any context.
    pub(super) fn min_recv_wr(&self) -> u32 {
        self.min_recv_wr.count()
    }

    /// How often the device tries again when the peer does not answer. Any context.
    pub(super) fn retry_count(&self) -> u8 {
        self.retry_count
    }

    /// How long a device may make no progress with what was posted. Any context.
    pub(super) fn timeout(&self) -> WatchdogTimeout {
        WatchdogTimeout::new(self.completion_timeout.count())
    }

    /// Whether new connections want their flow controlled. Any context.
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
