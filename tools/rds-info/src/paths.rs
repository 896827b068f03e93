// SPDX-License-Identifier: GPL-2.0
//! The paths of connections as readable text.

use std::fmt::{self, Write};

use crate::record::{Paths, Time};
use crate::show::{Layout, Row};

impl Row for Paths {
    const BETWEEN: &'static str = "\n";

    /// Writes nothing: each connection has its own header.
    fn header(_: &mut String, _: Layout) -> fmt::Result {
        Ok(())
    }

    fn row(&self, out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer, w) = ("LocalAddr", "RemoteAddr", layout.width());
        writeln!(out, "\t{local:>w$} {peer:>w$} {:>4} {:>7}", "Tos", "Trans")?;
        let (local, peer) = (self.local.to_string(), self.peer.to_string());
        let (tos, transport) = (self.tos, &self.transport);
        writeln!(out, "\t{local:>w$} {peer:>w$} {tos:>4} {transport:>7}")?;
        write!(out, "\n{:<4} {:<24} ", "P", "Connected@")?;
        write!(
            out,
            "{:<24} {:<24} {:<10} ",
            "Attempt@", "Reset@", "Attempts"
        )?;
        write!(out, "{:<6} {:<11} Reason", "RDS", "Down(Secs)")?;
        for path in &self.paths {
            write!(out, "\n{:<4} ", path.index)?;
            for at in [path.connected, path.attempted, path.reset] {
                write!(out, "{:<24} ", time(at))?;
            }
            write!(out, "{:<10} {}   ", path.attempts, path.flags.letters())?;
            let down = path.down().map(|seconds| seconds.to_string());
            write!(out, "{:<11} ", down.as_deref().unwrap_or("---"))?;
            match path.reason {
                0 => write!(out, "--")?,
                reason => write!(out, "{reason}")?,
            }
            if let Some(x) = path.traffic.filter(|_| layout.verbose) {
                write!(out, "  next_tx={}, next_rx={}", x.next_tx, x.next_rx)?;
                write!(out, ", send_bytes={}", x.send_bytes)?;
                write!(out, ", recv_bytes={}", x.recv_bytes)?;
                write!(out, ", retransmissions={}", x.retransmissions)?;
                if let Some(cpu) = x.cpu {
                    write!(out, ", cpu={cpu}")?;
                }
            }
        }
        Ok(())
    }
}

/// Formats month, day, year, and time of day. Oracle's tool prints the local time.
fn time(seconds: Time) -> String {
    if seconds == 0 {
        return "---".to_owned();
    }
    let (days, second) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let year = year.rem_euclid(100);
    format!("{month:02}/{day:02}/{year:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Returns year, month and day of a number of days after 1 January 1970. Years are counted from
/// March, so the leap day is the last.
fn date(days: i64) -> (i64, i64, i64) {
    // Days after 1 March of the year 0, and after the last multiple of 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + late, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ConnectionFlags, Family, Path, Traffic};
    use crate::show;

    /// Returns a connection with one path.
    fn paths(reset: Time, reason: u32, flags: u8) -> Paths {
        let path = Path {
            index: 0,
            connected: 1_700_000_060,
            attempted: 1_700_000_000,
            reset,
            attempts: 3,
            flags: ConnectionFlags::from_bits(flags),
            reason,
            traffic: None,
        };
        Paths {
            local: [10, 0, 0, 1].into(),
            peer: [10, 0, 0, 2].into(),
            transport: "infiniband".to_owned(),
            tos: 4,
            paths: vec![path],
        }
    }

    #[test]
    fn rows_are_those_of_the_established_tool() {
        let layout = Layout {
            family: Family::V4,
            ..Layout::default()
        };
        let rows = [paths(1_700_000_050, 26, 4), paths(0, 0, 2)];
        let text = show::table("RDS Paths", &rows, layout).unwrap();
        let head = "P    Connected@               Attempt@                 Reset@                   Attempts   RDS    Down(Secs)  Reason";
        let up = "0    11/14/23 22:14:20 UTC    11/14/23 22:13:20 UTC    11/14/23 22:14:10 UTC    3          --C-   10          26";
        let connecting = "0    11/14/23 22:14:20 UTC    11/14/23 22:13:20 UTC    ---                      3          -c--   ---         --";
        let of = "\t      LocalAddr      RemoteAddr  Tos   Trans";
        let ends = "\t       10.0.0.1        10.0.0.2    4 infiniband";
        let wanted = [
            "",
            "RDS Paths:",
            of,
            ends,
            "",
            head,
            up,
            "",
            of,
            ends,
            "",
            head,
            connecting,
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn traffic_is_a_detail() {
        let mut row = paths(0, 0, 4);
        let brief = Layout {
            family: Family::V4,
            ..Layout::default()
        };
        let verbose = Layout {
            verbose: true,
            ..brief
        };
        let last = |row: &Paths, layout| {
            let text = show::table("RDS Paths", std::slice::from_ref(row), layout).unwrap();
            text.lines().last().unwrap().to_owned()
        };
        let without = last(&row, brief);
        assert_eq!(last(&row, verbose), without);
        let mut traffic = Traffic {
            next_tx: 1,
            next_rx: 2,
            send_bytes: 3,
            recv_bytes: 4,
            retransmissions: 5,
            cpu: None,
        };
        let words = "next_tx=1, next_rx=2, send_bytes=3, recv_bytes=4, retransmissions=5";
        for (cpu, more) in [(None, ""), (Some(6), ", cpu=6")] {
            traffic.cpu = cpu;
            row.paths[0].traffic = Some(traffic);
            assert_eq!(last(&row, brief), without);
            assert_eq!(last(&row, verbose), format!("{without}  {words}{more}"));
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "---"),
            (1, "01/01/70 00:00:01 UTC"),
            (951_782_399, "02/28/00 23:59:59 UTC"),
            (951_782_400, "02/29/00 00:00:00 UTC"),
            (951_868_800, "03/01/00 00:00:00 UTC"),
            (1_735_689_599, "12/31/24 23:59:59 UTC"),
            (4_107_542_400, "03/01/00 00:00:00 UTC"),
            (-1, "12/31/69 23:59:59 UTC"),
        ] {
            assert_eq!(time(seconds), wanted);
        }
        // No number is too large to be shown.
        time(Time::MAX);
        time(Time::MIN);
    }
}
