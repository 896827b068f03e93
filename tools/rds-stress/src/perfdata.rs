// SPDX-License-Identifier: GPL-2.0
//! Rows for scripts, in the form of Oracle's rds-stress: CSV behind "::". They contain the increase
//! of each RDS counter of the kernel in a second, and the load of the CPUs.

use std::time::Instant;

use anyhow::{Context, Result};
use rds_socket::info::{Counter, Family, COUNTERS};
use rds_socket::RdsSocket;

use crate::cpu::Usage;
use crate::options::Options;
use crate::stats::Counts;

/// The columns before those of the counters. Oracle's header has one name for the bytes that RDMA
/// moved, and its rows have two numbers.
const FIRST: &str =
    "::nr_tasks:count,req_size:bytes,ack_size:bytes,rdma_size:bytes,req_sent:count,\
                     thruput:kB/s,thruput_mbi:kB/s,thruput_mbo:kB/s,tx_delay:microseconds,\
                     rtt:microseconds,cpu:percent";

/// The columns behind those of the counters.
const LAST: &str = "user:percent,system:percent,idle:percent,irq:percent,intr:count";

/// A snapshot of the kernel's counters.
#[derive(Debug)]
pub(crate) struct PerfData {
    socket: RdsSocket,
    last: Snapshot,
}

#[derive(Clone, Debug)]
struct Snapshot {
    at: Instant,
    counters: Vec<Counter>,
    usage: Usage,
}

impl Snapshot {
    fn take(socket: &RdsSocket) -> Result<Self> {
        let counters = COUNTERS.read(socket, Family::V4)?;
        Ok(Snapshot {
            at: Instant::now(),
            counters: counters.context("this kernel has no counters of RDS")?,
            usage: Usage::now()?,
        })
    }

    fn header(&self) -> String {
        let mut line = FIRST.to_owned();
        for Counter { name, .. } in &self.counters {
            let unit = if name.contains("_bytes") {
                "bytes"
            } else {
                "count"
            };
            line += &format!(",{name}:{unit}");
        }
        format!("{line},{LAST}\n")
    }

    /// Returns the columns whose values this module computes, for the time since `before`.
    fn columns(&self, before: &Snapshot) -> String {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-6);
        let mut line = String::new();
        for (now, then) in self.counters.iter().zip(&before.counters) {
            // Some values are no counters, and may decrease.
            let rate = (now.value as f64 - then.value as f64) / seconds;
            line += &format!(",{rate:.6}");
        }
        let (percent, interrupts) = self.usage.since(before.usage);
        for part in percent {
            line += &format!(",{part:.6}");
        }
        format!("{line},{interrupts}")
    }
}

impl PerfData {
    pub(crate) fn new() -> Result<Self> {
        let socket = RdsSocket::new()?;
        let last = Snapshot::take(&socket)?;
        Ok(PerfData { socket, last })
    }

    /// Returns the line above the rows.
    pub(crate) fn header(&self) -> String {
        self.last.header()
    }

    /// Returns the row for the `seconds` since the last one, with the traffic in that time.
    pub(crate) fn row(
        &mut self,
        counts: &Counts,
        options: &Options,
        seconds: f64,
        cpu: Option<f64>,
    ) -> Result<String> {
        let now = Snapshot::take(&self.socket)?;
        let columns = now.columns(&self.last);
        self.last = now;
        Ok(format!(
            "{}{columns}\n",
            traffic(counts, options, seconds, cpu)
        ))
    }
}

fn traffic(counts: &Counts, options: &Options, seconds: f64, cpu: Option<f64>) -> String {
    let sizes = [options.req_bytes, options.ack_bytes, options.rdma.bytes];
    let [requests, acks, rdma] = sizes;
    let mut line = format!(
        "::{},{requests},{acks},{rdma},{}",
        options.tasks, counts.req_tx
    );
    for number in counts.averages(options, seconds) {
        line += &format!(",{number:.6}");
    }
    format!("{line},{:.6}", cpu.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::options::example;

    fn snapshot(at: Instant, all: &[(&str, u64)]) -> Snapshot {
        Snapshot {
            at,
            counters: all
                .iter()
                .map(|&(name, value)| Counter {
                    name: name.to_owned(),
                    value,
                })
                .collect(),
            usage: Usage::now().unwrap(),
        }
    }

    #[test]
    fn rows_have_the_columns_of_the_header() {
        let start = Instant::now();
        let before = snapshot(start, &[("send_queued", 10), ("copy_to_user_bytes", 50)]);
        let later = start + Duration::from_millis(500);
        let after = snapshot(later, &[("send_queued", 20), ("copy_to_user_bytes", 48)]);
        let header = before.header();
        assert!(
            header.contains(",cpu:percent,send_queued:count,copy_to_user_bytes:bytes,user:percent"),
            "{header}"
        );
        let counts = Counts {
            req_tx: 5,
            ack_rx: 5,
            rdma_in: 2048,
            rtt_nanos: 20_000,
            ..Counts::default()
        };
        let first = traffic(&counts, &example(), 2.0, None);
        let wanted = "::2,1024,64,0,5,2.656250,1.000000,0.000000,0.000000,4.000000,0.000000";
        assert_eq!(first, wanted);
        let columns = after.columns(&before);
        assert!(columns.starts_with(",20.000000,-4.000000,"), "{columns}");
        let row = format!("{first}{columns}\n");
        assert_eq!(row.split(',').count(), header.split(',').count(), "{row}");
    }
}
