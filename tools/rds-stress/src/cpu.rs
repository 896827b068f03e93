// SPDX-License-Identifier: GPL-2.0
//! How busy the CPUs of this node are, as `/proc/stat` has it.

use std::fs;

use anyhow::{Context, Result};

/// Time of all CPUs since the boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    pub(crate) fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Ticks::parse(&stat).context("/proc/stat has no line of all CPUs")
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; the times of guests are in the first two.
        let numbers = line.split_whitespace().take(8).map(str::parse);
        let ticks: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        let all: u64 = ticks.iter().fold(0, |sum, &x| sum.saturating_add(x));
        let idle = ticks.get(3)?.saturating_add(*ticks.get(4)?);
        Some(Ticks {
            busy: all.saturating_sub(idle),
            all,
        })
    }

    /// Percent of the time since `before`.
    pub(crate) fn percent_since(self, before: Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.busy.saturating_sub(before.busy) as f64 * 100.0 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_is_not_busy() {
        let before = Ticks::parse("cpu  10 0 10 100 0 0 0 0 0 0\ncpu0 1 2\n").unwrap();
        assert_eq!(before, Ticks { busy: 20, all: 120 });
        let after = Ticks::parse("cpu  20 0 20 140 20 5 5 10 7 7\n").unwrap();
        assert_eq!(after.percent_since(before), 40.0);
        assert_eq!(before.percent_since(before), 0.0);
    }

    #[test]
    fn nonsense_is_none() {
        for stat in ["", "cpu0 1 2 3 4 5", "cpu  1 2 3", "cpu  a b c d e"] {
            assert_eq!(Ticks::parse(stat), None, "{stat}");
        }
    }
}
