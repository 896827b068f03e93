// SPDX-License-Identifier: GPL-2.0
//! Samples and the numbers computed from them.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::mark;

/// A pause that is long enough for other processes to finish their work.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// The unit of a row's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// Nanoseconds of a clock that counts instructions.
    Instructions,
    /// Nanoseconds, most of which are waiting time.
    Nanoseconds,
    #[serde(rename = "KiB")]
    Kibibytes,
}

/// Samples, each the cost of one operation.
pub(crate) struct Samples {
    pub(crate) values: Vec<f64>,
    /// Operations between the marks for a profiler.
    pub(crate) marked: u64,
}

/// One line of the output.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) row: &'static str,
    pub(crate) unit: Unit,
    samples: usize,
    pub(crate) p50: f64,
    mean: f64,
    min: f64,
    max: f64,
    marked: u64,
}

impl Samples {
    /// Returns the line of a row, or `None` if there are no samples.
    pub(crate) fn report(mut self, row: &'static str, unit: Unit) -> Option<Report> {
        self.values.sort_by(f64::total_cmp);
        let count = self.values.len();
        let sum: f64 = self.values.iter().sum();
        Some(Report {
            row,
            unit,
            samples: count,
            p50: *self.values.get(count / 2)?,
            mean: sum / count as f64,
            min: *self.values.first()?,
            max: *self.values.last()?,
            marked: self.marked,
        })
    }
}

/// The number of repetitions of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Operations without readings of the clock, which fill caches and pools.
    pub(crate) warm_up: usize,
    pub(crate) samples: usize,
}

/// Measures an operation, of which one call does `times`. The cost of the clock is subtracted.
pub(crate) fn repeat(
    effort: Effort,
    times: usize,
    mut operation: impl FnMut() -> Result<()>,
) -> Result<Samples> {
    for _ in 0..effort.warm_up {
        operation()?;
    }
    let clock = clock_cost();
    let mut values = Vec::with_capacity(effort.samples);
    mark::start();
    for _ in 0..effort.samples {
        let start = Instant::now();
        operation()?;
        let took = start.elapsed();
        values.push((nanoseconds(took) - clock) / times as f64);
    }
    mark::stop();
    let marked = (effort.samples * times) as u64;
    Ok(Samples { values, marked })
}

/// Measures an operation that each object can do once. All objects are made before the first is
/// used.
pub(crate) fn once_each<T>(
    effort: Effort,
    make: impl Fn() -> Result<T>,
    operation: impl Fn(&T) -> Result<()>,
) -> Result<Samples> {
    let things = (0..effort.warm_up + effort.samples)
        .map(|_| make())
        .collect::<Result<Vec<_>>>()?;
    let mut next = things.iter();
    repeat(effort, 1, || next.next().map_or(Ok(()), &operation))
}

pub(crate) fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Returns the cost of two readings of the clock, of which one is within the measured time.
pub(crate) fn clock_cost() -> f64 {
    let shortest = (0..100)
        .map(|_| Instant::now().elapsed())
        .min()
        .unwrap_or_default();
    nanoseconds(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report() {
        let samples = Samples {
            values: vec![5.0, 1.0, 3.0],
            marked: 3,
        };
        let report = samples.report("x", Unit::Kibibytes).unwrap();
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"row":"x","unit":"KiB","samples":3,"p50":3.0,"mean":3.0,"min":1.0,"max":5.0,"marked":3}"#
        );
    }

    #[test]
    fn no_samples_no_report() {
        let samples = Samples {
            values: Vec::new(),
            marked: 0,
        };
        assert!(samples.report("x", Unit::Instructions).is_none());
    }

    #[test]
    fn warm_up_is_not_counted() {
        let effort = Effort {
            warm_up: 2,
            samples: 3,
        };
        let mut calls = 0;
        let samples = repeat(effort, 4, || {
            calls += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!((calls, samples.values.len(), samples.marked), (5, 3, 12));
    }
}
