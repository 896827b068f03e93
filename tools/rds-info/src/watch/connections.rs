// SPDX-License-Identifier: GPL-2.0
//! The connections of `--watch`: the busiest peers, and those that messages wait for.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use anstyle::Style;

use super::{rate_text, DROPS, GROWS, SAME, TITLE};
use crate::snapshot::{by_flow, flow_of, messages, state, Flow, Messages, Snapshot, STATES};

/// A connection with its rates.
#[derive(Debug, PartialEq)]
struct Row {
    flow: Flow,
    state: &'static str,
    unsent: u64,
    unacknowledged: u64,
    /// Messages per second; `None`: the connection is new, or its numbers have begun again.
    sent: Option<f64>,
    received: Option<f64>,
}

impl Row {
    /// Returns `true` if messages wait for a peer that is not connected.
    fn is_stuck(&self) -> bool {
        !matches!(self.state, "connected" | "resting") && self.unsent + self.unacknowledged != 0
    }

    fn busy(&self) -> f64 {
        self.sent.unwrap_or(0.0) + self.received.unwrap_or(0.0)
    }

    fn style(&self) -> Style {
        if self.is_stuck() {
            DROPS
        } else if self.busy() != 0.0 {
            GROWS
        } else {
            SAME
        }
    }
}

/// Returns the state of each connection. The kernel's table of IPv6 may list several connections
/// without types of service, of which the worst state counts.
fn states(tables: &Snapshot) -> BTreeMap<Flow, &'static str> {
    let mut found = BTreeMap::new();
    let rank = |state: &str| STATES.iter().position(|x| *x == state);
    for connection in &tables.connections {
        let now = state(connection.flags);
        let worst = found.entry(flow_of(connection)).or_insert(now);
        if rank(now) > rank(worst) {
            *worst = now;
        }
    }
    found
}

/// Returns the connections: those with waiting messages first, then the busiest.
///
/// `before` are the tables that are older by `time`.
fn rows(before: Option<(&Snapshot, Duration)>, now: &Snapshot) -> Vec<Row> {
    let old =
        before.map(|(tables, time)| (messages(&tables.connections), time.as_secs_f64().max(1e-6)));
    let unsent = by_flow(&now.connections, &now.unsent);
    let unacknowledged = by_flow(&now.connections, &now.unacknowledged);
    let (states, messages) = (states(now), messages(&now.connections));
    let row = |(flow, sum): (Flow, Messages)| {
        let rate = |of: fn(&Messages) -> u64| {
            let (all, seconds) = old.as_ref()?;
            // Smaller numbers are those of another connection, or of a peer that has restarted.
            let grown = of(&sum).checked_sub(of(all.get(&flow)?))?;
            Some(grown as f64 / seconds)
        };
        Row {
            flow,
            state: states.get(&flow).copied().unwrap_or("down"),
            unsent: unsent.get(&flow).map_or(0, |x| x.messages),
            unacknowledged: unacknowledged.get(&flow).map_or(0, |x| x.messages),
            sent: rate(|x| x.sent),
            received: rate(|x| x.received),
        }
    };
    let mut rows: Vec<Row> = messages.into_iter().map(row).collect();
    rows.sort_by(|a, b| {
        let stuck = b.is_stuck().cmp(&a.is_stuck());
        stuck.then(b.busy().total_cmp(&a.busy()))
    });
    rows
}

/// Writes the connections, in at most `lines` lines of a terminal that has `columns`.
///
/// Writes nothing if there is no connection, or no room for one and its title.
pub(super) fn write(
    out: &mut String,
    before: Option<(&Snapshot, Duration)>,
    now: &Snapshot,
    lines: usize,
    columns: usize,
) -> fmt::Result {
    let rows = rows(before, now);
    let addresses = rows.iter().flat_map(|x| [x.flow.local, x.flow.peer]);
    let width = addresses.map(|x| x.to_string().len()).max().unwrap_or(0);
    let width = width.max("RemoteAddr".len());
    let title = format!(
        "{:>width$} {:>width$} {:>3} {:>10} {:>6} {:>7} {:>8} {:>8}",
        "LocalAddr", "RemoteAddr", "Tos", "State", "Unsent", "Unacked", "Sent/s", "Recv/s"
    );
    // Long addresses of IPv6 make lines that a terminal wraps. The last line is empty.
    let each = title.len().div_ceil(columns.max(1));
    let count = (lines.saturating_sub(1) / each).saturating_sub(1);
    if rows.is_empty() || count == 0 {
        return Ok(());
    }
    writeln!(out, "{TITLE}{title}{TITLE:#}")?;
    for row in rows.iter().take(count) {
        let style = row.style();
        writeln!(
            out,
            "{style}{:>width$} {:>width$} {:>3} {:>10} {:>6} {:>7} {:>8} {:>8}{style:#}",
            row.flow.local,
            row.flow.peer,
            row.flow.tos,
            row.state,
            row.unsent,
            row.unacknowledged,
            rate_text(row.sent),
            rate_text(row.received),
        )?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Connection, ConnectionFlags, Message};
    use std::net::IpAddr;

    const CONNECTING: u8 = 2;
    const CONNECTED: u8 = 4;
    const TIME: Duration = Duration::from_secs(2);

    fn connection(peer: &str, tos: u8, next: [u64; 2], bits: u8) -> Connection {
        let peer: IpAddr = peer.parse().unwrap();
        let local = if peer.is_ipv4() {
            "192.0.2.1"
        } else {
            "fd00::1"
        };
        Connection {
            local: local.parse().unwrap(),
            peer,
            transport: "infiniband".to_owned(),
            tos: Some(tos),
            next_tx: next[0],
            next_rx: next[1],
            flags: ConnectionFlags::from_bits(bits),
        }
    }

    fn message(peer: &str) -> Message {
        Message {
            local: [192, 0, 2, 1].into(),
            local_port: 1,
            peer: peer.parse().unwrap(),
            peer_port: 2,
            tos: 0,
            seq: 1,
            bytes: 10,
            flags: 0,
        }
    }

    fn tables(connections: &[Connection]) -> Snapshot {
        Snapshot {
            connections: connections.to_vec(),
            ..Snapshot::default()
        }
    }

    /// Returns the plain lines.
    fn lines(
        before: Option<&Snapshot>,
        now: &Snapshot,
        most: usize,
        columns: usize,
    ) -> Vec<String> {
        let mut out = String::new();
        let before = before.map(|x| (x, TIME));
        write(&mut out, before, now, most, columns).unwrap();
        let plain = anstream::adapter::strip_str(&out).to_string();
        plain.lines().map(str::to_owned).collect()
    }

    #[test]
    fn stuck_and_busy_ones_are_first() {
        let before = tables(&[
            connection("192.0.2.2", 0, [1, 0], CONNECTED),
            connection("192.0.2.3", 0, [11, 5], CONNECTED),
            connection("192.0.2.3", 8, [11, 5], CONNECTED),
            connection("192.0.2.4", 0, [3, 0], CONNECTING),
            connection("192.0.2.5", 0, [900, 900], CONNECTED),
        ]);
        let mut now = tables(&[
            connection("192.0.2.2", 0, [2, 2], CONNECTED),
            connection("192.0.2.3", 0, [11, 5], CONNECTED),
            connection("192.0.2.3", 8, [10_011, 8], CONNECTED),
            connection("192.0.2.4", 0, [3, 0], CONNECTING),
            connection("192.0.2.5", 0, [2, 2], CONNECTED),
            connection("192.0.2.6", 0, [9, 9], 0),
        ]);
        now.unsent = vec![message("192.0.2.4"), message("192.0.2.4")];
        now.unacknowledged = vec![message("192.0.2.2")];
        assert_eq!(
            lines(Some(&before), &now, 99, 80),
            [
                " LocalAddr RemoteAddr Tos      State Unsent Unacked   Sent/s   Recv/s",
                " 192.0.2.1  192.0.2.4   0 connecting      2       0      0.0      0.0",
                " 192.0.2.1  192.0.2.3   8  connected      0       0   5000.0      1.5",
                " 192.0.2.1  192.0.2.2   0  connected      0       1      0.5      0.5",
                " 192.0.2.1  192.0.2.3   0  connected      0       0      0.0      0.0",
                " 192.0.2.1  192.0.2.5   0  connected      0       0        -        -",
                " 192.0.2.1  192.0.2.6   0       down      0       0        -        -",
                "",
            ]
        );
    }

    #[test]
    fn connections_without_types_of_service_are_added_up() {
        let untyped = |next, bits| Connection {
            tos: None,
            ..connection("fd00::2", 0, next, bits)
        };
        let before = tables(&[untyped([1, 0], CONNECTED), untyped([5, 5], CONNECTED)]);
        let now = tables(&[untyped([3, 2], CONNECTING), untyped([7, 6], CONNECTED)]);
        let rows = rows(Some((&before, TIME)), &now);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].state, "connecting");
        assert_eq!((rows[0].sent, rows[0].received), (Some(2.0), Some(1.0)));
    }

    #[test]
    fn stuck_ones_have_a_colour_of_their_own() {
        let up = connection("192.0.2.2", 0, [5, 5], CONNECTED);
        let mut now = tables(&[up, connection("192.0.2.3", 0, [5, 5], CONNECTING)]);
        now.unacknowledged = vec![message("192.0.2.3")];
        let before = tables(&[connection("192.0.2.2", 0, [4, 5], CONNECTED)]);
        let styles: Vec<Style> = rows(Some((&before, TIME)), &now)
            .iter()
            .map(Row::style)
            .collect();
        assert_eq!(styles, [DROPS, GROWS]);
        // Without a waiting message it is not stuck.
        now.unacknowledged.clear();
        let styles: Vec<Style> = rows(Some((&before, TIME)), &now)
            .iter()
            .map(Row::style)
            .collect();
        assert_eq!(styles, [GROWS, SAME]);
    }

    #[test]
    fn the_lines_fit() {
        let peer = "fd00:1111:2222:3333:4444:5555:6666:7777";
        let all: Vec<Connection> = (0..9)
            .map(|tos| connection(peer, tos, [1, 0], CONNECTED))
            .collect();
        for (most, columns, count) in [
            (0, 80, 0),
            (2, 200, 0),
            (3, 200, 3),
            (99, 200, 11),
            // Each but the last takes two lines.
            (4, 80, 0),
            (5, 80, 3),
            (7, 80, 4),
        ] {
            let lines = lines(None, &tables(&all), most, columns);
            assert_eq!(lines.len(), count, "{most} {columns}");
        }
        assert!(lines(None, &Snapshot::default(), 99, 80).is_empty());
        let mut longest = tables(&[connection("192.168.200.200", 255, [1, 0], CONNECTED)]);
        longest.connections[0].local = [192, 168, 100, 100].into();
        assert!(lines(None, &longest, 9, 80).iter().all(|x| x.len() < 80));
    }
}
