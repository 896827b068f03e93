// SPDX-License-Identifier: GPL-2.0
//! The counters of the tasks, and the rows made from them, in the columns of Oracle's rds-stress.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rds_tools_common::Latencies;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::message::Op;
use crate::options::Options;
use crate::rdma::Moved;

/// The counters of one task, which another thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    req_tx: AtomicU64,
    req_rx: AtomicU64,
    ack_tx: AtomicU64,
    ack_rx: AtomicU64,
    send_nanos: AtomicU64,
    rtt_nanos: AtomicU64,
    rdma_in: AtomicU64,
    rdma_out: AtomicU64,
    /// All round trips.
    pub(crate) round_trips: Histogram,
    /// The round trips since they were last taken; `None`: they are not shown.
    latencies: Option<Mutex<Latencies>>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Counters {
    /// Creates counters; `latencies`: also for percentiles of round trips.
    pub(crate) fn new(latencies: bool) -> Self {
        Counters {
            latencies: latencies.then(Mutex::default),
            ..Counters::default()
        }
    }

    /// Removes the round trips, and returns them.
    pub(crate) fn take_latencies(&self) -> Option<Latencies> {
        let latencies = self.latencies.as_ref()?.lock();
        Some(latencies.unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Counts a sent message, and the time of the call.
    pub(crate) fn sent(&self, op: Op, took: Duration) {
        match op {
            Op::Ack => self.ack_tx.fetch_add(1, Relaxed),
            Op::Request => {
                self.send_nanos.fetch_add(nanos(took), Relaxed);
                self.req_tx.fetch_add(1, Relaxed)
            }
        };
    }

    pub(crate) fn received_request(&self) {
        self.req_rx.fetch_add(1, Relaxed);
    }

    /// Counts a received ack, and the time since its request.
    pub(crate) fn received_ack(&self, rtt: Duration) {
        self.rtt_nanos.fetch_add(nanos(rtt), Relaxed);
        self.round_trips.add(rtt);
        if let Some(latencies) = &self.latencies {
            // Another thread takes them once a second.
            let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
            latencies.record(rtt);
        }
        self.ack_rx.fetch_add(1, Relaxed);
    }

    /// Counts bytes that operations moved.
    pub(crate) fn moved(&self, moved: Moved) {
        self.rdma_in.fetch_add(moved.bytes_in, Relaxed);
        self.rdma_out.fetch_add(moved.bytes_out, Relaxed);
    }

    /// Adds these counters to `sum`.
    pub(crate) fn add_to(&self, sum: &mut Counts) {
        sum.req_tx += self.req_tx.load(Relaxed);
        sum.req_rx += self.req_rx.load(Relaxed);
        sum.ack_tx += self.ack_tx.load(Relaxed);
        sum.ack_rx += self.ack_rx.load(Relaxed);
        sum.send_nanos += self.send_nanos.load(Relaxed);
        sum.rtt_nanos += self.rtt_nanos.load(Relaxed);
        sum.rdma_in += self.rdma_in.load(Relaxed);
        sum.rdma_out += self.rdma_out.load(Relaxed);
    }
}

/// Counts of messages, sent and received, and sums of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) req_tx: u64,
    pub(crate) req_rx: u64,
    pub(crate) ack_tx: u64,
    pub(crate) ack_rx: u64,
    /// Time in calls that send requests.
    pub(crate) send_nanos: u64,
    /// Time from requests to their acks.
    pub(crate) rtt_nanos: u64,
    /// Bytes that operations moved to the memory of this end, and out of it.
    pub(crate) rdma_in: u64,
    pub(crate) rdma_out: u64,
}

impl Sub for Counts {
    type Output = Counts;

    fn sub(self, before: Counts) -> Counts {
        Counts {
            req_tx: self.req_tx.saturating_sub(before.req_tx),
            req_rx: self.req_rx.saturating_sub(before.req_rx),
            ack_tx: self.ack_tx.saturating_sub(before.ack_tx),
            ack_rx: self.ack_rx.saturating_sub(before.ack_rx),
            send_nanos: self.send_nanos.saturating_sub(before.send_nanos),
            rtt_nanos: self.rtt_nanos.saturating_sub(before.rtt_nanos),
            rdma_in: self.rdma_in.saturating_sub(before.rdma_in),
            rdma_out: self.rdma_out.saturating_sub(before.rdma_out),
        }
    }
}

impl Counts {
    /// Describes messages that only one end has counted, if any: sent and not received, or the
    /// reverse.
    pub(crate) fn disagreement(&self, other: &Counts) -> Option<String> {
        let ways = [
            ("requests sent", self.req_tx, other.req_rx),
            ("acks sent", self.ack_tx, other.ack_rx),
            ("requests received", self.req_rx, other.req_tx),
            ("acks received", self.ack_rx, other.ack_tx),
            ("RDMA bytes in", self.rdma_in, other.rdma_out),
            ("RDMA bytes out", self.rdma_out, other.rdma_in),
        ];
        let differ = ways.into_iter().find(|(_, mine, theirs)| mine != theirs);
        differ.map(|(what, mine, theirs)| {
            format!("loss or duplication: {what} here: {mine}, the other end counts {theirs}")
        })
    }

    /// Returns KiB per second of messages, into the memory of this end and out of it; microseconds
    /// of a call and of a round trip.
    pub(crate) fn averages(&self, options: &Options, seconds: f64) -> [f64; 5] {
        let micros = |sum: u64, count: u64| sum as f64 / 1000.0 / count.max(1) as f64;
        let bytes = (self.req_tx + self.req_rx) as f64 * f64::from(options.req_bytes)
            + (self.ack_tx + self.ack_rx) as f64 * f64::from(options.ack_bytes);
        [
            bytes / 1024.0 / seconds,
            self.rdma_in as f64 / 1024.0 / seconds,
            self.rdma_out as f64 / 1024.0 / seconds,
            micros(self.send_nanos, self.req_tx),
            micros(self.rtt_nanos, self.ack_rx),
        ]
    }

    /// Returns the row for `seconds`.
    pub(crate) fn row(&self, options: &Options, seconds: f64, cpu: Option<f64>) -> String {
        let rate = |count: u64| (count as f64 / seconds) as u64;
        let [messages, rdma_in, rdma_out, call, rtt] = self.averages(options, seconds);
        format!(
            "{:4} {:6} {:6} {:10.2} {:10.2} {:10.2} {:7.2} {:8.2} {:5.2}",
            options.tasks,
            rate(self.req_tx),
            rate(self.req_rx),
            messages,
            rdma_in,
            rdma_out,
            call,
            rtt,
            cpu.unwrap_or(-1.0),
        )
    }
}

/// Returns the columns of percentiles behind a row.
pub(crate) fn percentiles(latencies: &Latencies) -> String {
    let shown = [
        latencies.percentile(50.0),
        latencies.percentile(99.0),
        latencies.max(),
    ];
    shown.map(|micros| format!(" {micros:9.2}")).concat()
}

/// Returns the line above these columns.
pub(crate) fn percentiles_header() -> String {
    ["p50 us", "p99 us", "max us"]
        .map(|x| format!(" {x:>9}"))
        .concat()
}

/// Returns the line above the rows.
pub(crate) fn header() -> String {
    format!(
        "{:>4} {:>6} {:>6} {:>10} {:>10} {:>10} {:>7} {:>8} {:>5}",
        "tsks", "tx/s", "rx/s", "tx+rx K/s", "mbi K/s", "mbo K/s", "tx us/c", "rtt us", "cpu %"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::example;

    fn sum(counters: &[&Counters]) -> Counts {
        let mut sum = Counts::default();
        counters.iter().for_each(|c| c.add_to(&mut sum));
        sum
    }

    #[test]
    fn rows_have_the_columns_of_the_header() {
        let counters = Counters::default();
        for _ in 0..200 {
            counters.sent(Op::Request, Duration::from_micros(5));
            counters.received_ack(Duration::from_micros(250));
        }
        for _ in 0..100 {
            counters.received_request();
            counters.sent(Op::Ack, Duration::from_secs(1));
        }
        counters.moved(Moved {
            bytes_in: 65536,
            bytes_out: 1024,
        });
        let counts = sum(&[&counters]);
        assert_eq!(
            [
                header(),
                counts.row(&example(), 2.0, None),
                counts.row(&example(), 2.0, Some(50.0))
            ],
            [
                "tsks   tx/s   rx/s  tx+rx K/s    mbi K/s    mbo K/s tx us/c   rtt us cpu %",
                "   2    100     50     159.38      32.00       0.50    5.00   250.00 -1.00",
                "   2    100     50     159.38      32.00       0.50    5.00   250.00 50.00",
            ]
        );
    }

    #[test]
    fn percentiles_have_columns_of_their_own() {
        let counters = Counters::new(true);
        for micros in 1..=100 {
            counters.received_ack(Duration::from_micros(micros));
        }
        let taken = counters.take_latencies().unwrap();
        assert_eq!(percentiles_header(), "    p50 us    p99 us    max us");
        let row = percentiles(&taken);
        let values: Vec<f64> = row.split_whitespace().map(|x| x.parse().unwrap()).collect();
        for (value, wanted) in values.into_iter().zip([50.0_f64, 99.0, 100.0]) {
            assert!((value - wanted).abs() < 0.1, "{row}");
        }
        assert_eq!(row.len(), percentiles_header().len());
        assert_eq!(counters.take_latencies().unwrap().count(), 0);
        assert!(Counters::default().take_latencies().is_none());
    }

    #[test]
    fn an_idle_second_has_no_averages() {
        let row = Counts::default().row(&example(), 1.0, None);
        assert!(!row.contains("NaN") && !row.contains("inf"), "{row}");
    }

    #[test]
    fn sums_and_differences() {
        let (a, b) = (Counters::default(), Counters::default());
        a.received_request();
        let before = sum(&[&a, &b]);
        b.received_request();
        b.sent(Op::Request, Duration::from_nanos(3));
        let wanted = Counts {
            req_rx: 1,
            req_tx: 1,
            send_nanos: 3,
            ..Counts::default()
        };
        assert_eq!(sum(&[&a, &b]) - before, wanted);
    }

    #[test]
    fn ends_that_disagree() {
        let (mine, theirs) = (
            Counts {
                req_tx: 5,
                ack_rx: 5,
                ..Counts::default()
            },
            Counts {
                req_rx: 5,
                ack_tx: 5,
                ..Counts::default()
            },
        );
        assert_eq!(mine.disagreement(&theirs), None);
        let less = Counts {
            req_rx: 4,
            ..theirs
        };
        let text = mine.disagreement(&less).unwrap();
        assert!(
            text.contains("requests sent here: 5") && text.contains("counts 4"),
            "{text}"
        );
        assert!(theirs.disagreement(&Counts { ack_rx: 6, ..mine }).is_some());
        let more = Counts { rdma_in: 8, ..mine };
        let text = more.disagreement(&theirs).unwrap();
        assert!(text.contains("RDMA bytes in here: 8"), "{text}");
    }
}
