// SPDX-License-Identifier: GPL-2.0
//! `--watch`: queues, and connections and counters with their rates, again and again.
//!
//! Colours, and the erasing of the last output, are for terminals alone.

mod connections;

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use anyhow::{Context, Result};
use rds_socket::RdsSocket;

use crate::counters::{find, Meaning};
use crate::snapshot::{Amount, Snapshot, STATES};

const GROWS: Style = AnsiColor::Green.on_default();
const DROPS: Style = AnsiColor::Red.on_default().bold();
const SAME: Style = Style::new().dimmed();
const TITLE: Style = Style::new().bold();

/// Moves to the first place of a terminal, and erases what is behind it.
const ERASE: &str = "\x1b[H\x1b[J";

/// The tables, and the time at which they were read.
struct Sample {
    at: Instant,
    tables: Snapshot,
}

/// A counter with its rate. The order is that of the output.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    name: &'a str,
    value: u64,
    /// Change per second; `None`: this is the first sample.
    rate: Option<f64>,
    meaning: Meaning,
}

impl Row<'_> {
    fn style(&self) -> Style {
        match self.rate {
            Some(rate) if rate != 0.0 && self.meaning == Meaning::Drop => DROPS,
            Some(rate) if rate != 0.0 => GROWS,
            _ => SAME,
        }
    }

    /// Returns the group in which the row is: growing drops, other changes, the rest.
    fn group(&self) -> u8 {
        match self.style() {
            DROPS => 0,
            GROWS => 1,
            _ => 2,
        }
    }
}

/// Prints until the program is ended, or its output is closed.
pub(crate) fn run(interval: Duration) -> Result<()> {
    let socket = RdsSocket::new()?;
    let mut before: Option<Sample> = None;
    loop {
        let now = Sample {
            at: Instant::now(),
            tables: Snapshot::read(&socket)?,
        };
        let terminal = io::stdout().is_terminal();
        let size = terminal.then(terminal_size::terminal_size).flatten();
        let (most, columns) = size.map_or((usize::MAX, usize::MAX), |(width, height)| {
            (usize::from(height.0), usize::from(width.0))
        });
        let text = text(before.as_ref(), &now, most, columns).context("cannot lay out a table")?;
        let erase = if terminal { ERASE } else { "" };
        let mut out = anstream::stdout().lock();
        match write!(out, "{erase}{text}").and_then(|()| out.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            result => result.context("cannot write the tables")?,
        }
        drop(out);
        before = Some(now);
        std::thread::sleep(interval);
    }
}

/// Returns the text of a rate.
fn rate_text(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"))
}

/// Returns the output, of fewer than `most` lines of a terminal that has `columns`.
fn text(
    before: Option<&Sample>,
    now: &Sample,
    most: usize,
    columns: usize,
) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let tables = &now.tables;
    let by_state = tables.by_state();
    write!(out, "{TITLE}Connections:{TITLE:#}")?;
    for state in STATES {
        let count: u64 = by_state
            .iter()
            .filter(|((_, x), _)| *x == state)
            .map(|(_, x)| x)
            .sum();
        write!(out, " {count} {state}")?;
    }
    writeln!(out, "   {TITLE}Sockets:{TITLE:#} {}", tables.sockets.len())?;
    let queues = [
        ("Unread", &tables.unread),
        ("Unsent", &tables.unsent),
        ("Unacknowledged", &tables.unacknowledged),
    ];
    let queues = queues.map(|(title, messages)| {
        let sum = Amount::of(messages);
        format!(
            "{TITLE}{title}:{TITLE:#} {} messages, {} bytes",
            sum.messages, sum.bytes
        )
    });
    writeln!(out, "{}\n", queues.join("\n"))?;
    // Counters keep half of the room: a title, rows, and a line for the cursor.
    let room = most.saturating_sub(out.lines().count()) / 2;
    let old = before.map(|sample| (&sample.tables, now.at - sample.at));
    let begin = out.len();
    connections::write(&mut out, old, tables, room, columns)?;
    let wrapped = wrapped(&out[begin..], columns);
    writeln!(
        out,
        "{TITLE}{:>32} {:>16} {:>14}{TITLE:#}",
        "CounterName", "Value", "per second"
    )?;
    // One line stays for the cursor.
    let lines = out.lines().count() + wrapped + 1;
    for row in rows(before, now).iter().take(most.saturating_sub(lines)) {
        let style = row.style();
        let rate = rate_text(row.rate);
        writeln!(
            out,
            "{style}{:>32} {:>16} {rate:>14}{style:#}",
            row.name, row.value
        )?;
    }
    Ok(out)
}

/// Returns the number of lines that a terminal adds to the text, by wrapping long ones.
fn wrapped(text: &str, columns: usize) -> usize {
    let plain = anstream::adapter::strip_str(text).to_string();
    let added = |line: &str| line.len().saturating_sub(1) / columns.max(1);
    plain.lines().map(added).sum()
}

/// Returns the counters that are not 0, or were not.
fn rows<'a>(before: Option<&Sample>, now: &'a Sample) -> Vec<Row<'a>> {
    let row = |counter: &'a crate::record::Counter| {
        let old = before.map(|sample| {
            let mut counters = sample.tables.counters.iter();
            let old = counters
                .find(|x| x.name == counter.name)
                .map_or(0, |x| x.value);
            let seconds = (now.at - sample.at).as_secs_f64().max(1e-6);
            (old, seconds)
        });
        let rate = old.map(|(old, seconds)| (counter.value as f64 - old as f64) / seconds);
        let shown = counter.value != 0 || rate.is_some_and(|rate| rate != 0.0);
        shown.then(|| Row {
            name: &counter.name,
            value: counter.value,
            rate,
            meaning: find(&counter.name).map_or(Meaning::Event, |(meaning, _)| meaning),
        })
    };
    let mut rows: Vec<Row<'_>> = now.tables.counters.iter().filter_map(row).collect();
    rows.sort_by_key(Row::group);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Connection, ConnectionFlags, Counter};

    fn sample(at: Instant, counters: &[(&str, u64)]) -> Sample {
        let counters = counters.iter().map(|&(name, value)| Counter {
            name: name.to_owned(),
            value,
        });
        let tables = Snapshot {
            counters: counters.collect(),
            ..Snapshot::default()
        };
        Sample { at, tables }
    }

    fn two() -> (Sample, Sample) {
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        (
            sample(
                start,
                &[("send_queued", 10), ("conn_reset", 1), ("ib_pool_bytes", 9)],
            ),
            sample(
                later,
                &[
                    ("send_queued", 10),
                    ("conn_reset", 4),
                    ("ib_pool_bytes", 0),
                    ("recv_drop_no_sock", 1),
                    ("send_pong", 0),
                ],
            ),
        )
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn rates_are_per_second() {
        let (before, now) = two();
        let text = plain(&text(Some(&before), &now, usize::MAX, 80).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Connections: 0 connected 0 resting 0 connecting 0 down   Sockets: 0",
                "Unread: 0 messages, 0 bytes",
                "Unsent: 0 messages, 0 bytes",
                "Unacknowledged: 0 messages, 0 bytes",
                "",
                "                     CounterName            Value     per second",
                "               recv_drop_no_sock                1            0.5",
                "                      conn_reset                4            1.5",
                "                   ib_pool_bytes                0           -4.5",
                "                     send_queued               10            0.0",
            ]
        );
    }

    #[test]
    fn the_first_output_has_no_rates() {
        let (before, _) = two();
        let text = plain(&text(None, &before, usize::MAX, 80).unwrap());
        assert_eq!(
            text.lines().filter(|x| x.ends_with('-')).count(),
            3,
            "{text}"
        );
    }

    #[test]
    fn drops_have_a_colour_of_their_own() {
        let (before, now) = two();
        let text = text(Some(&before), &now, usize::MAX, 80).unwrap();
        let styled: Vec<&str> = text.lines().skip(6).collect();
        for (line, style) in styled.into_iter().zip([DROPS, GROWS, GROWS, SAME]) {
            assert!(line.starts_with(&style.render().to_string()), "{line:?}");
            assert!(line.ends_with("\x1b[0m"), "{line:?}");
        }
    }

    #[test]
    fn the_output_fits_a_terminal() {
        let (before, now) = two();
        for most in 7..11 {
            let text = text(Some(&before), &now, most, 80).unwrap();
            assert_eq!(text.lines().count(), most - 1);
            assert!(
                most < 8 || plain(&text).contains("recv_drop_no_sock"),
                "{text}"
            );
        }
    }

    #[test]
    fn connections_leave_room_for_counters() {
        let (before, mut now) = two();
        let peer = "fd00:1111:2222:3333:4444:5555:6666:7777";
        now.tables.connections = (0..99)
            .map(|tos| Connection {
                local: "fd00::1".parse().unwrap(),
                peer: peer.parse().unwrap(),
                transport: "infiniband".to_owned(),
                tos: Some(tos),
                next_tx: 1,
                next_rx: 0,
                flags: ConnectionFlags::from_bits(4),
            })
            .collect();
        for (columns, least) in [(80, 15), (200, 11)] {
            for most in 7..40 {
                let text = plain(&text(Some(&before), &now, most, columns).unwrap());
                let lines = text.lines().count() + wrapped(&text, columns);
                assert!(lines < most, "{most} {columns}\n{text}");
                assert_eq!(
                    text.contains("connected      0"),
                    most >= least,
                    "{most}\n{text}"
                );
                assert!(
                    most < 8 || text.contains("recv_drop_no_sock"),
                    "{most}\n{text}"
                );
            }
        }
    }
}
