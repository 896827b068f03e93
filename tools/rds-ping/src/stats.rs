// SPDX-License-Identifier: GPL-2.0
//! The output: the line of each ping and the summary.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use rds_tools_common::Latencies;

/// Counts of a run.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Pings attempted.
    pub(crate) sent: u64,
    duplicates: u64,
    received: u64,
    min: Duration,
    max: Duration,
    sum: Duration,
    latencies: Latencies,
}

impl Stats {
    pub(crate) fn answered(&mut self, rtt: Duration) {
        self.min = if self.received == 0 {
            rtt
        } else {
            self.min.min(rtt)
        };
        self.max = self.max.max(rtt);
        self.sum += rtt;
        self.latencies.record(rtt);
        self.received += 1;
    }

    pub(crate) fn duplicate(&mut self) {
        self.duplicates += 1;
    }

    pub(crate) fn all_answered(&self) -> bool {
        self.sent > 0 && self.received == self.sent
    }

    /// Returns the number of pings that were answered.
    pub(crate) fn answers(&self) -> u64 {
        self.received
    }

    /// Returns the distribution of the round trips, as lines.
    pub(crate) fn distribution(&self) -> String {
        if self.received == 0 {
            return String::new();
        }
        let (line, rows) = (self.latencies.percentiles(), self.latencies.histogram());
        format!("round trip {line}\n{rows}")
    }

    /// Returns the last lines of the output. Their unit is spelled differently from that of the
    /// answers' lines, so that scripts which count those by their "usec" do not count these.
    pub(crate) fn summary(&self, destination: IpAddr) -> String {
        let lost = self.sent - self.received;
        let percent = (lost * 100).div_ceil(self.sent.max(1));
        let mut text = format!(
            "--- rds-ping {destination} ---\n{} sent, {} received, {lost} lost ({percent}%)",
            self.sent, self.received
        );
        if self.duplicates > 0 {
            let _ = write!(text, ", {} duplicate answers", self.duplicates);
        }
        text.push('\n');
        if self.received > 0 {
            let average = self.sum.as_micros() / u128::from(self.received);
            let _ = writeln!(
                text,
                "round trip min/avg/max {}/{average}/{} us",
                self.min.as_micros(),
                self.max.as_micros()
            );
        }
        text
    }
}

/// Returns the line of an answer; `from` is the answering address if it is not the destination.
pub(crate) fn answer(number: u64, rtt: Duration, from: Option<IpAddr>, duplicate: bool) -> String {
    let mut line = format!(" {number:3}: {} usec", rtt.as_micros());
    if let Some(from) = from {
        let _ = write!(line, " ({from})");
    }
    if duplicate {
        line.push_str(" DUP!");
    }
    line
}

/// Returns the line of a ping that was not sent or not answered.
pub(crate) fn failure(number: u64, why: &str) -> String {
    format!(" {number:3}: ERROR: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_lines_have_the_established_shape() {
        let rtt = Duration::from_nanos(127_999);
        assert_eq!(answer(1, rtt, None, false), "   1: 127 usec");
        let other = "10.0.0.9".parse().ok();
        assert_eq!(
            answer(1234, rtt, other, true),
            " 1234: 127 usec (10.0.0.9) DUP!"
        );
        assert_eq!(failure(12, "no answer"), "  12: ERROR: no answer");
    }

    #[test]
    fn summary_of_some_answers() {
        let mut stats = Stats {
            sent: 3,
            ..Stats::default()
        };
        stats.answered(Duration::from_micros(200));
        stats.answered(Duration::from_micros(100));
        assert!(!stats.all_answered() && stats.answers() == 2);
        let lines = stats.distribution();
        assert!(
            lines.starts_with("round trip p50/p90/p99/p99.9/max 100."),
            "{lines}"
        );
        assert_eq!(lines.lines().count(), 3, "{lines}");
        let text = stats.summary("10.0.0.2".parse().unwrap());
        assert_eq!(
            text,
            "--- rds-ping 10.0.0.2 ---\n3 sent, 2 received, 1 lost (34%)\n\
             round trip min/avg/max 100/150/200 us\n"
        );
        stats.answered(Duration::from_micros(600));
        assert!(stats.all_answered());
        stats.duplicate();
        let text = stats.summary("::1".parse().unwrap());
        assert!(
            text.contains("3 sent, 3 received, 0 lost (0%), 1 duplicate answers\n"),
            "{text}"
        );
        assert!(text.ends_with("min/avg/max 100/300/600 us\n"), "{text}");
    }

    #[test]
    fn summary_without_answers() {
        let stats = Stats::default();
        assert!(!stats.all_answered() && stats.distribution().is_empty());
        let text = stats.summary("::1".parse().unwrap());
        assert_eq!(
            text,
            "--- rds-ping ::1 ---\n0 sent, 0 received, 0 lost (0%)\n"
        );
    }
}
