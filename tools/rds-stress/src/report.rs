// SPDX-License-Identifier: GPL-2.0
//! The rows of a test, one a second, and their average.

use std::time::{Duration, Instant};

use anyhow::Result;
use rds_tools_common::{Latencies, Progress};

use crate::cpu::Ticks;
use crate::options::{Options, Own};
use crate::perfdata::PerfData;
use crate::session::say;
use crate::stats::{header, percentiles, percentiles_header, Counts};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The measured values at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    counts: Counts,
    ticks: Option<Ticks>,
}

impl Sample {
    fn take(counts: Counts, report_cpu: bool) -> Result<Self> {
        Ok(Sample {
            at: Instant::now(),
            counts,
            ticks: report_cpu.then(Ticks::now).transpose()?,
        })
    }

    /// Returns the counts since `before`, the seconds, and the load of the CPUs.
    fn since(&self, before: &Sample) -> (Counts, f64, Option<f64>) {
        let ticks = self.ticks.zip(before.ticks);
        let cpu = ticks.map(|(now, then)| now.percent_since(then));
        let seconds = (self.at - before.at).as_secs_f64().max(1e-6);
        (self.counts - before.counts, seconds, cpu)
    }
}

/// Prints the rows.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    options: &'a Options,
    perfdata: Option<PerfData>,
    first: Sample,
    last: Sample,
    /// All round trips; `None`: they are not shown.
    latencies: Option<Latencies>,
    /// In place of the rows.
    progress: Option<Progress>,
}

impl<'a> Report<'a> {
    /// Prints the line above the rows. The rows count from now on. `seconds` is the length of the
    /// test, if that is known.
    pub(crate) fn start(
        options: &'a Options,
        own: &Own,
        counts: Counts,
        seconds: Option<u32>,
    ) -> Result<Self> {
        let perfdata = options.perfdata.then(PerfData::new).transpose()?;
        say(&match &perfdata {
            Some(perfdata) => perfdata.header(),
            None if own.latencies => format!("{}{}\n", header(), percentiles_header()),
            None => format!("{}\n", header()),
        })?;
        let first = Sample::take(counts, own.report_cpu)?;
        let progress = || Progress::new(seconds.map(u64::from), "seconds");
        Ok(Report {
            options,
            perfdata,
            first,
            last: first,
            latencies: own.latencies.then(Latencies::default),
            progress: options.summary_only.then(progress),
        })
    }

    /// Returns the time at which the rows began.
    pub(crate) fn began(&self) -> Instant {
        self.first.at
    }

    /// Returns the time at which the next row is due.
    pub(crate) fn due(&self) -> Instant {
        self.last.at + SECOND
    }

    /// Prints the row for the time since the last one; `over`: it is the last row. `latencies` are
    /// the round trips of that time.
    pub(crate) fn row(&mut self, counts: Counts, latencies: &Latencies, over: bool) -> Result<()> {
        let mut more = String::new();
        if let Some(all) = &mut self.latencies {
            all.add(latencies);
            more = percentiles(latencies);
        }
        if let Some(progress) = &self.progress {
            progress.set(self.first.at.elapsed().as_secs());
        }
        let now = Sample::take(counts, self.first.ticks.is_some())?;
        // The last second may be cut short.
        let counts_as_one = !over || now.at - self.last.at >= SECOND / 2;
        if counts_as_one && !self.options.summary_only {
            let (counts, seconds, cpu) = now.since(&self.last);
            say(&match &mut self.perfdata {
                Some(perfdata) => perfdata.row(&counts, self.options, seconds, cpu)?,
                None => format!("{}{more}\n", counts.row(self.options, seconds, cpu)),
            })?;
        }
        self.last = now;
        Ok(())
    }

    /// Prints the average over all rows.
    pub(crate) fn average(&mut self) -> Result<()> {
        // Erases the bar.
        self.progress = None;
        if !self.options.summary_only {
            say(&format!("{}\n", "-".repeat(45)))?;
        }
        let (counts, seconds, cpu) = self.last.since(&self.first);
        let row = counts.row(self.options, seconds, cpu);
        let Some(latencies) = &self.latencies else {
            return say(&format!("{row}  (average)\n"));
        };
        say(&format!("{row}{}  (average)\n", percentiles(latencies)))?;
        if latencies.count() > 0 {
            let (line, rows) = (latencies.percentiles(), latencies.histogram());
            say(&format!("\nRTT {line}\n{rows}"))?;
        }
        Ok(())
    }
}
