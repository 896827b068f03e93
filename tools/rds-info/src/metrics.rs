// SPDX-License-Identifier: GPL-2.0
//! `--prometheus`: metrics in the text format of Prometheus, for the textfile collector of its
//! node exporter.
//!
//! Names follow the conventions of Prometheus: base units, and `_total` behind numbers that only
//! grow. A counter that `counters.rs` does not know may be either, so it has no type.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use crate::counters::{find, Meaning};
use crate::record::Message;
use crate::snapshot::{by_flow, flow_of, messages, Amount, Flow, Messages, Snapshot};

/// Names of counters without their unit, or with another word for it.
const RENAMED: [(&str, &str); 6] = [
    ("copy_to_user", "copy_to_user_bytes"),
    ("copy_from_user", "copy_from_user_bytes"),
    ("recv_bytes_added_to_sock", "recv_added_to_sock_bytes"),
    ("recv_bytes_freed_fromsock", "recv_freed_from_sock_bytes"),
    ("ib_rx_total_frags", "ib_rx_frags"),
    ("ib_rx_total_incs", "ib_rx_incs"),
];

/// Metrics as text.
#[derive(Debug, Default)]
struct Metrics(String);

impl Metrics {
    /// Begins a metric.
    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a value, with the names and values of its labels.
    fn add(&mut self, name: &str, labels: &[(&str, String)], value: impl Display) {
        self.0 += name;
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', r"\\").replace('"', r#"\""#);
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", text.replace('\n', r"\n"));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.begin(name, kind, help);
        self.add(name, &[], value);
    }

    fn counters(&mut self, snapshot: &Snapshot) {
        for counter in &snapshot.counters {
            let name = plain(&counter.name);
            let renamed = RENAMED.into_iter().find(|(old, _)| *old == name);
            let name = renamed.map_or(name.as_str(), |(_, new)| new);
            match find(&counter.name) {
                Some((Meaning::Gauge, help)) => {
                    self.single(&format!("rds_{name}"), "gauge", help, counter.value);
                }
                Some((_, help)) => {
                    let name = format!("rds_{name}_total");
                    self.single(&name, "counter", help, counter.value);
                }
                None => {
                    let help = "A counter of the kernel that rds-info does not know.";
                    self.single(&format!("rds_{name}"), "untyped", help, counter.value);
                }
            }
        }
    }

    fn connections(&mut self, snapshot: &Snapshot) {
        let name = "rds_connections";
        self.begin(name, "gauge", "Connections by transport and state.");
        for ((transport, state), count) in snapshot.by_state() {
            let labels = [("transport", transport.into()), ("state", state.into())];
            self.add(name, &labels, count);
        }
        let name = "rds_connection_up";
        let help = "1 if the connection is up, or rests until there is a message.";
        self.begin(name, "gauge", help);
        let mut up: BTreeMap<Flow, bool> = BTreeMap::new();
        for connection in &snapshot.connections {
            // The kernel's table of IPv6 may list several connections without types of service.
            let all = up.entry(flow_of(connection)).or_insert(true);
            *all &= connection.flags.is_connected();
        }
        for (flow, up) in up {
            self.add(name, &labels(flow), u8::from(up));
        }
    }

    /// Adds the messages that each connection has sent or received.
    fn messages(&mut self, what: &str, sums: &BTreeMap<Flow, Messages>, of: fn(&Messages) -> u64) {
        let name = format!("rds_connection_{what}_messages_total");
        let help = "Messages since the connection was created, also pings, by sequence number.";
        self.begin(&name, "counter", help);
        for (flow, sum) in sums {
            self.add(&name, &labels(*flow), of(sum));
        }
    }

    /// Adds the messages of a queue of the connections, and their bytes.
    fn queue(&mut self, what: &str, of: &str, snapshot: &Snapshot, messages: &[Message]) {
        let found = by_flow(&snapshot.connections, messages);
        let (name, help) = (
            format!("rds_connection_{what}_messages"),
            format!("Messages {of}."),
        );
        self.begin(&name, "gauge", &help);
        for (flow, amount) in &found {
            self.add(&name, &labels(*flow), amount.messages);
        }
        let (name, help) = (
            format!("rds_connection_{what}_bytes"),
            format!("Payload {of}."),
        );
        self.begin(&name, "gauge", &help);
        for (flow, amount) in &found {
            self.add(&name, &labels(*flow), amount.bytes);
        }
    }
}

/// Returns a name that has only characters of names of metrics.
fn plain(name: &str) -> String {
    let valid = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(valid).collect()
}

fn labels(flow: Flow) -> [(&'static str, String); 3] {
    [
        ("local", flow.local.to_string()),
        ("peer", flow.peer.to_string()),
        ("tos", flow.tos.to_string()),
    ]
}

/// Returns all metrics. `module` describes the loaded module.
pub(crate) fn text(snapshot: &Snapshot, module: &str) -> String {
    let mut metrics = Metrics::default();
    let name = "rds_module_info";
    metrics.begin(name, "gauge", "The loaded RDS module; always 1.");
    metrics.add(name, &[("version", module.to_owned())], 1);
    metrics.counters(snapshot);
    let sockets = snapshot.sockets.len() as u64;
    metrics.single("rds_sockets", "gauge", "Bound sockets.", sockets);
    let unread = Amount::of(&snapshot.unread);
    let help = "Messages that programs have not read.";
    metrics.single("rds_unread_messages", "gauge", help, unread.messages);
    let help = "Payload that programs have not read.";
    metrics.single("rds_unread_bytes", "gauge", help, unread.bytes);
    metrics.connections(snapshot);
    let sums = messages(&snapshot.connections);
    metrics.messages("queued", &sums, |x| x.sent);
    metrics.messages("received", &sums, |x| x.received);
    metrics.queue("unsent", "that wait to be sent", snapshot, &snapshot.unsent);
    let of = "that the peer has not acknowledged";
    metrics.queue("unacknowledged", of, snapshot, &snapshot.unacknowledged);
    metrics.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Connection, ConnectionFlags, Counter};

    fn connection(last: u8, tos: Option<u8>, bits: u8) -> Connection {
        Connection {
            local: [192, 0, 2, 1].into(),
            peer: [192, 0, 2, last].into(),
            transport: "infiniband".to_owned(),
            tos,
            next_tx: 1,
            next_rx: 1,
            flags: ConnectionFlags::from_bits(bits),
        }
    }

    fn message(last: u8, bytes: u32) -> Message {
        Message {
            local: [192, 0, 2, 1].into(),
            local_port: 1,
            peer: [192, 0, 2, last].into(),
            peer_port: 2,
            tos: 0,
            seq: 1,
            bytes,
            flags: 0,
        }
    }

    fn lines(snapshot: &Snapshot) -> Vec<String> {
        let text = text(snapshot, "rds_rust \"1\\2\"");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // A metric has one type, and its values are together.
        let types = lines.iter().filter(|x| x.starts_with("# TYPE"));
        let mut names: Vec<_> = types.map(|x| x.split(' ').nth(2).unwrap()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        lines
    }

    #[test]
    fn counters_and_gauges() {
        let counters = [
            ("conn_reset", 12),
            ("copy_to_user", 5),
            ("ib_pool_bytes", u64::MAX),
            ("new-counter", 3),
        ];
        let counters = counters.map(|(name, value)| Counter {
            name: name.to_owned(),
            value,
        });
        let snapshot = Snapshot {
            counters: counters.to_vec(),
            ..Snapshot::default()
        };
        let lines = lines(&snapshot);
        assert_eq!(
            lines[..12],
            [
                "# HELP rds_module_info The loaded RDS module; always 1.",
                "# TYPE rds_module_info gauge",
                r#"rds_module_info{version="rds_rust \"1\\2\""} 1"#,
                "# HELP rds_conn_reset_total Lost connections.",
                "# TYPE rds_conn_reset_total counter",
                "rds_conn_reset_total 12",
                "# HELP rds_copy_to_user_bytes_total Bytes copied to programs.",
                "# TYPE rds_copy_to_user_bytes_total counter",
                "rds_copy_to_user_bytes_total 5",
                "# HELP rds_ib_pool_bytes Bytes of memory that all pools hold.",
                "# TYPE rds_ib_pool_bytes gauge",
                "rds_ib_pool_bytes 18446744073709551615",
            ]
        );
        assert_eq!(
            lines[13..15],
            ["# TYPE rds_new_counter untyped", "rds_new_counter 3"]
        );
    }

    #[test]
    fn connections_and_queues() {
        let snapshot = Snapshot {
            connections: vec![
                connection(2, Some(0), 4),
                connection(2, None, 2),
                Connection {
                    next_tx: 8,
                    next_rx: 0,
                    ..connection(3, Some(8), 0x84)
                },
            ],
            unacknowledged: vec![message(2, 100), message(2, 20), message(9, 1)],
            ..Snapshot::default()
        };
        let lines = lines(&snapshot);
        for line in [
            r#"rds_connections{transport="infiniband",state="connected"} 1"#,
            r#"rds_connections{transport="infiniband",state="connecting"} 1"#,
            r#"rds_connections{transport="infiniband",state="resting"} 1"#,
            r#"rds_connections{transport="infiniband",state="down"} 0"#,
            r#"rds_connection_up{local="192.0.2.1",peer="192.0.2.2",tos="0"} 0"#,
            r#"rds_connection_up{local="192.0.2.1",peer="192.0.2.3",tos="8"} 1"#,
            r#"rds_connection_unacknowledged_messages{local="192.0.2.1",peer="192.0.2.2",tos="0"} 2"#,
            r#"rds_connection_unacknowledged_bytes{local="192.0.2.1",peer="192.0.2.2",tos="0"} 120"#,
            r#"rds_connection_unacknowledged_bytes{local="192.0.2.1",peer="192.0.2.3",tos="8"} 0"#,
            r#"rds_connection_unacknowledged_bytes{local="192.0.2.1",peer="192.0.2.9",tos="0"} 1"#,
            r#"rds_connection_unsent_messages{local="192.0.2.1",peer="192.0.2.2",tos="0"} 0"#,
            r#"rds_connection_queued_messages_total{local="192.0.2.1",peer="192.0.2.2",tos="0"} 0"#,
            r#"rds_connection_queued_messages_total{local="192.0.2.1",peer="192.0.2.3",tos="8"} 7"#,
            r#"rds_connection_received_messages_total{local="192.0.2.1",peer="192.0.2.3",tos="8"} 0"#,
            "# TYPE rds_connection_received_messages_total counter",
            "rds_unread_bytes 0",
        ] {
            assert_eq!(
                lines.iter().filter(|x| *x == line).count(),
                1,
                "{line}\n{lines:?}"
            );
        }
    }
}
