// SPDX-License-Identifier: GPL-2.0
//! How much memory the machine has left, to the page.

use std::fs;

use anyhow::{bail, Context, Result};

const PAGE_KIB: u64 = 4;

/// Free memory in KiB: the pages of all zones that are free, and those that a CPU keeps for its next
/// allocations, which the kernel's own sum leaves out.
pub(crate) fn free_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/zoneinfo").context("cannot read /proc/zoneinfo")?;
    let pages = free_pages(&text).context("/proc/zoneinfo is not as it should be")?;
    if pages == 0 {
        bail!("/proc/zoneinfo knows of no free pages");
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
    fn this_machine_has_memory() {
        assert!(free_kib().unwrap() > 0);
    }
}
