// SPDX-License-Identifier: GPL-2.0
//! The distribution of round trip times, in the form of Oracle's rds-stress.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Number of buckets. Each has the times from a power of two of microseconds to the next; the last
/// one also has all longer times.
const BUCKETS: usize = 16;

/// The round trips of one task, which another thread reads.
#[derive(Debug, Default)]
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl Histogram {
    /// Adds a round trip with this time.
    pub(crate) fn add(&self, rtt: Duration) {
        let bucket = rtt.as_micros().checked_ilog2().unwrap_or(0) as usize;
        if let Some(count) = self.0.get(bucket.min(BUCKETS - 1)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Adds these to `sum`.
    pub(crate) fn add_to(&self, sum: &mut Sum) {
        for (sum, count) in sum.0.iter_mut().zip(&self.0) {
            *sum += count.load(Relaxed);
        }
    }
}

/// The round trips of all tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum([u64; BUCKETS]);

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nRTT histogram\nRTT (us)        \t\t    Count")?;
        let all = self.0.iter().sum::<u64>().max(1);
        for (bucket, count) in self.0.into_iter().enumerate() {
            let (from, to) = (1 << bucket, 1 << (bucket + 1));
            let percent = count as f64 * 100.0 / all as f64;
            writeln!(f, "[{from:6} - {to:6}] \t\t {count:8} \t\t ({percent:.2}%)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_their_buckets() {
        let histogram = Histogram::default();
        for micros in [0, 1, 2, 3, 4, 1023, 1024, 65535, 65536, 10_000_000] {
            histogram.add(Duration::from_micros(micros));
        }
        histogram.add(Duration::from_nanos(999));
        let mut sum = Sum::default();
        histogram.add_to(&mut sum);
        histogram.add_to(&mut sum);
        let mut wanted = [0; BUCKETS];
        for (bucket, count) in [(0, 3), (1, 2), (2, 1), (9, 1), (10, 1), (15, 3)] {
            wanted[bucket] = 2 * count;
        }
        assert_eq!(sum, Sum(wanted));
    }

    #[test]
    fn rows_are_those_of_the_established_tool() {
        let mut sum = Sum::default();
        (sum.0[0], sum.0[4]) = (1, 3);
        let text = sum.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3 + BUCKETS);
        assert_eq!(lines[..2], ["", "RTT histogram"]);
        assert_eq!(lines[2], "RTT (us)        \t\t    Count");
        assert_eq!(lines[3], "[     1 -      2] \t\t        1 \t\t (25.00%)");
        assert_eq!(lines[7], "[    16 -     32] \t\t        3 \t\t (75.00%)");
        assert_eq!(lines[18], "[ 32768 -  65536] \t\t        0 \t\t (0.00%)");
        assert!(!Sum::default().to_string().contains("NaN"));
    }
}
