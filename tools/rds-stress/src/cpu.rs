// SPDX-License-Identifier: GPL-2.0
//! The load of this node's CPUs by kind, from `/proc/stat`.

use std::fs;

use anyhow::{Context, Result};

const NO_CPUS: &str = "/proc/stat has no line of all CPUs";

fn read() -> Result<String> {
    fs::read_to_string("/proc/stat").context("cannot read /proc/stat")
}

/// Returns ticks of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal. The first two
/// include the times of guests.
fn all_cpus(stat: &str) -> Option<[u64; 8]> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers = line.split_whitespace().take(8).map(str::parse);
    let mut ticks: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    // Old kernels do not have the last field.
    (ticks.len() >= 5).then(|| ticks.resize(8, 0))?;
    ticks.try_into().ok()
}

/// Time of all CPUs since the boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    pub(crate) fn now() -> Result<Self> {
        Ticks::parse(&read()?).context(NO_CPUS)
    }

    fn parse(stat: &str) -> Option<Self> {
        let ticks = all_cpus(stat)?;
        let all: u64 = ticks.iter().fold(0, |sum, &x| sum.saturating_add(x));
        let [_, _, _, idle, waiting, ..] = ticks;
        let idle = idle.saturating_add(waiting);
        Some(Ticks {
            busy: all.saturating_sub(idle),
            all,
        })
    }

    /// Returns the percentage of busy time since `before`.
    pub(crate) fn percent_since(self, before: Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.busy.saturating_sub(before.busy) as f64 * 100.0 / all as f64
    }
}

/// The use of the CPUs and the number of interrupts, since the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    ticks: [u64; 8],
    interrupts: u64,
}

impl Usage {
    pub(crate) fn now() -> Result<Self> {
        Usage::parse(&read()?).context(NO_CPUS)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("intr "));
        let all = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Some(Usage {
            ticks: all_cpus(stat)?,
            interrupts: all.unwrap_or(0),
        })
    }

    /// Returns percentages of the time since `before` in programs, the kernel, idle, and for
    /// interrupts; and the number of these.
    pub(crate) fn since(self, before: Usage) -> ([f64; 4], u64) {
        let mut ticks = self.ticks;
        for (now, then) in ticks.iter_mut().zip(before.ticks) {
            *now = now.saturating_sub(then);
        }
        let all = ticks.iter().sum::<u64>().max(1);
        let percent = |sum: u64| sum as f64 * 100.0 / all as f64;
        let [user, nice, system, idle, waiting, irq, softirq, _] = ticks;
        (
            [
                percent(user + nice),
                percent(system),
                percent(idle + waiting),
                percent(irq + softirq),
            ],
            self.interrupts.saturating_sub(before.interrupts),
        )
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
    fn usage_is_in_percent() {
        let before = Usage::parse("cpu  1 1 1 1 1 1 1 1\nintr 100 3 4\n").unwrap();
        let after = Usage::parse("cpu  11 11 11 31 11 6 6 21 0 0\nintr 150\n").unwrap();
        assert_eq!(after.since(before), ([20.0, 10.0, 40.0, 10.0], 50));
        assert_eq!(before.since(after), ([0.0; 4], 0));
        let old = Usage::parse("cpu  1 2 3 4 5\n").unwrap();
        assert_eq!((old.ticks[7], old.interrupts), (0, 0));
    }

    #[test]
    fn nonsense_is_none() {
        for stat in ["", "cpu0 1 2 3 4 5", "cpu  1 2 3", "cpu  a b c d e"] {
            assert_eq!(Ticks::parse(stat), None, "{stat}");
        }
    }
}
