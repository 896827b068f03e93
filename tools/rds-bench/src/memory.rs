// SPDX-License-Identifier: GPL-2.0
//! The amount of free memory of the machine, exact to a page.

use std::fs;

use anyhow::{bail, Context, Result};

const PAGE_KIB: u64 = 4;

/// Memory in use, by its kind, in KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Memory {
    /// Total, as the negative of the free memory.
    pub(crate) all: f64,
    /// Memory in slabs.
    pub(crate) slab: f64,
}

impl Memory {
    /// Measures the present use. Only differences between two of these values have a meaning.
    pub(crate) fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
        let slab = meminfo(&text, "Slab:").context("/proc/meminfo has no line of slabs")?;
        Ok(Self {
            all: -(free_kib()? as f64),
            slab: slab as f64,
        })
    }

    /// Returns the growth since `before`, for each of `count` objects.
    pub(crate) fn each_since(self, before: Self, count: usize) -> Self {
        Self {
            all: (self.all - before.all) / count as f64,
            slab: (self.slab - before.slab) / count as f64,
        }
    }
}

fn meminfo(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Returns free memory in KiB: the free pages of all zones, and those that a CPU keeps for its next
/// allocations. The kernel's own sum omits the latter.
fn free_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/zoneinfo").context("cannot read /proc/zoneinfo")?;
    let pages = free_pages(&text).context("/proc/zoneinfo has an unknown format")?;
    if pages == 0 {
        bail!("/proc/zoneinfo has no number of free pages");
    }
    Ok(pages * PAGE_KIB)
}

fn free_pages(zoneinfo: &str) -> Option<u64> {
    let mut sum = 0;
    for line in zoneinfo.lines() {
        // "  pages free     3840" of each zone, "              count:    5" of each CPU in it
        let mut words = line.split_whitespace();
        let number = match (words.next(), words.next()) {
            (Some("pages"), Some("free")) => words.next()?,
            (Some("count:"), Some(number)) => number,
            _ => continue,
        };
        sum += number.parse::<u64>().ok()?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_zones_and_cpus() {
        let text = "\
Node 0, zone      DMA
  pages free     3840
        boost    0
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    7
              high:     0
    cpu: 1
              count: 20
Node 0, zone    DMA32
  pages free     100
";
        assert_eq!(free_pages(text), Some(3967));
        assert_eq!(free_pages("  pages free     many\n"), None);
    }

    #[test]
    fn finds_a_kind_of_memory() {
        let text = "MemTotal:  100 kB\nSlab:    27360 kB\nSReclaimable: 7 kB\n";
        assert_eq!(meminfo(text, "Slab:"), Some(27360));
        assert_eq!(meminfo(text, "Slub:"), None);
    }

    #[test]
    fn differences_are_for_each() {
        let before = Memory {
            all: -100.0,
            slab: 10.0,
        };
        let after = Memory {
            all: -40.0,
            slab: 16.0,
        };
        let each = Memory {
            all: 30.0,
            slab: 3.0,
        };
        assert_eq!(after.each_since(before, 2), each);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(free_kib().unwrap() > 0);
    }
}
