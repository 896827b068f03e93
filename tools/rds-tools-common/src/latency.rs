// SPDX-License-Identifier: GPL-2.0
//! Latencies of many round trips: percentiles, and a histogram for people.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Decimal digits to which a latency is exact.
const DIGITS: u8 = 3;

/// Nanoseconds that a longer latency counts as: eleven days.
const LONGEST: u64 = 1_000_000_000_000_000;

/// Characters of the longest bar.
const BAR: u64 = 40;

/// The latencies that were recorded. Their number does not change the size.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // The only error is an invalid number of digits.
        Latencies(Histogram::new(DIGITS).expect("the number of digits is valid"))
    }
}

impl Latencies {
    /// Adds a latency.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // Cannot fail, as the histogram resizes itself for any latency up to the longest one.
        let _ = self.0.record(nanos.clamp(1, LONGEST));
    }

    /// Adds all latencies of `other`.
    pub fn add(&mut self, other: &Latencies) {
        // Cannot fail, as both resize themselves.
        let _ = self.0.add(&other.0);
    }

    /// Removes all latencies, and returns them.
    #[must_use]
    pub fn take(&mut self) -> Latencies {
        let taken = self.clone();
        self.0.reset();
        taken
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency in microseconds which this percentage of all do not exceed; 0 if there
    /// is none.
    pub fn percentile(&self, percent: f64) -> f64 {
        micros(self.0.value_at_percentile(percent))
    }

    /// Returns the longest latency in microseconds; 0 if there is none.
    pub fn max(&self) -> f64 {
        self.percentile(100.0)
    }

    /// Returns the percentiles in one line.
    pub fn percentiles(&self) -> String {
        let shown = [50.0, 90.0, 99.0, 99.9, 100.0].map(|x| format!("{:.1}", self.percentile(x)));
        format!("p50/p90/p99/p99.9/max {} us", shown.join("/"))
    }

    /// Returns a line with a bar for each doubling of the latency, from the shortest to the longest
    /// one. Is empty if there is none.
    pub fn histogram(&self) -> String {
        let mut out = String::new();
        let all = self.count();
        if all == 0 {
            return out;
        }
        let log = |nanos: u64| (nanos / 1000).max(1).ilog2();
        let (first, last) = (log(self.0.min()), log(self.0.max()));
        let mut counts = vec![0_u64; (last - first + 1) as usize];
        for each in self.0.iter_recorded() {
            let at = log(each.value_iterated_to()).clamp(first, last) - first;
            if let Some(count) = counts.get_mut(at as usize) {
                *count += each.count_at_value();
            }
        }
        let most = counts.iter().copied().max().unwrap_or(1).max(1);
        for (count, bucket) in counts.into_iter().zip(first..) {
            let bar = "#".repeat(usize::try_from((count * BAR).div_ceil(most)).unwrap_or(0));
            let percent = count as f64 * 100.0 / all as f64;
            let from = if bucket == 0 { 0 } else { 1_u64 << bucket };
            let to = 2_u64 << bucket;
            let _ = writeln!(
                out,
                "{from:>9} -{to:>9} us {count:>10} {percent:>6.2}% {bar}"
            );
        }
        out
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(all: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        all.into_iter()
            .for_each(|x| latencies.record(Duration::from_micros(x)));
        latencies
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() <= right / 500.0
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let all = latencies(1..=1000);
        assert_eq!(all.count(), 1000);
        for (percent, value) in [(50.0, 500.0), (99.0, 990.0), (99.9, 999.0), (100.0, 1000.0)] {
            assert!(near(all.percentile(percent), value), "{percent}");
        }
        assert!(near(all.max(), 1000.0));
        let line = all.percentiles();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words[0], words[2]), ("p50/p90/p99/p99.9/max", "us"));
        assert_eq!(words[1].split('/').count(), 5);
    }

    #[test]
    fn without_latencies() {
        let none = Latencies::default();
        assert_eq!((none.max(), none.histogram()), (0.0, String::new()));
        let line = "p50/p90/p99/p99.9/max 0.0/0.0/0.0/0.0/0.0 us";
        assert_eq!(none.percentiles(), line);
    }

    #[test]
    fn any_latency_is_counted() {
        let mut all = Latencies::default();
        for latency in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            all.record(latency);
        }
        assert_eq!(all.count(), 3);
        assert!(!all.histogram().is_empty());
    }

    #[test]
    fn sums_and_parts() {
        let mut all = latencies([5, 7]);
        all.add(&latencies([9, 11, 13]));
        assert_eq!(all.count(), 5);
        let taken = all.take();
        assert_eq!((all.count(), taken.count()), (0, 5));
        assert!(near(taken.max(), 13.0));
    }

    #[test]
    fn bars_show_the_share() {
        let text = latencies([0, 3, 3, 3, 2, 9]).histogram();
        let lines: Vec<&str> = text.lines().collect();
        let longest = "#".repeat(40);
        assert_eq!(
            lines,
            [
                "        0 -        2 us          1  16.67% ##########",
                &format!("        2 -        4 us          4  66.67% {longest}"),
                "        4 -        8 us          0   0.00% ",
                "        8 -       16 us          1  16.67% ##########",
            ]
        );
    }
}
