// SPDX-License-Identifier: GPL-2.0
//! The tables as text, in the columns of Oracle's rds-info.

use std::fmt::{self, Write};

use crate::columns::Columns;
use crate::record::{Connection, Counter, Family, IbConnection, Message, Socket, TcpConnection};

/// The layout of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    /// Columns of addresses are wider for IPv6.
    pub(crate) family: Family,
    /// Adds the limits of the device of an IB connection.
    pub(crate) verbose: bool,
    /// Optional columns of an IB connection; `None`: also without the columns that precede them.
    pub(crate) columns: Option<Columns>,
}

impl Layout {
    pub(crate) fn width(self) -> usize {
        match self.family {
            Family::V4 => 15,
            Family::V6 => 37,
        }
    }
}

/// A record that is a row of a table.
pub(crate) trait Row {
    /// The text between two rows.
    const BETWEEN: &'static str = "";

    /// Writes the line above the rows.
    fn header(out: &mut String, layout: Layout) -> fmt::Result;
    /// Writes the record's line, without its end.
    fn row(&self, out: &mut String, layout: Layout) -> fmt::Result;
}

/// Returns a table with its title.
pub(crate) fn table<R: Row>(title: &str, rows: &[R], layout: Layout) -> Result<String, fmt::Error> {
    let mut out = format!("\n{title}:\n");
    let title = out.len();
    R::header(&mut out, layout)?;
    if out.len() > title {
        out.push('\n');
    }
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push_str(R::BETWEEN);
        }
        row.row(&mut out, layout)?;
        out.push('\n');
    }
    Ok(out)
}

impl Row for Counter {
    fn header(out: &mut String, _: Layout) -> fmt::Result {
        write!(out, "{:>32} {:>16}", "CounterName", "Value")
    }

    fn row(&self, out: &mut String, _: Layout) -> fmt::Result {
        write!(out, "{:>32} {:>16}", self.name, self.value)
    }
}

impl Row for Socket {
    fn header(out: &mut String, layout: Layout) -> fmt::Result {
        let (bound, connected, w) = ("BoundAddr", "ConnAddr", layout.width());
        write!(
            out,
            "{bound:>w$} {:>5} {connected:>w$} {:>5} ",
            "BPort", "CPort"
        )?;
        write!(out, "{:>10} {:>10} {:>8}", "SndBuf", "RcvBuf", "Inode")
    }

    fn row(&self, out: &mut String, layout: Layout) -> fmt::Result {
        let (bound, connected) = (self.bound.to_string(), self.connected.to_string());
        let (bport, cport, w) = (self.bound_port, self.connected_port, layout.width());
        write!(out, "{bound:>w$} {bport:>5} {connected:>w$} {cport:>5} ")?;
        write!(
            out,
            "{:>10} {:>10} {:>8}",
            self.sndbuf, self.rcvbuf, self.inode
        )
    }
}

impl Row for Connection {
    fn header(out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer, w) = ("LocalAddr", "RemoteAddr", layout.width());
        write!(out, "{local:>w$} {peer:>w$} {:>4} ", "Tos")?;
        write!(out, "{:>16} {:>16} {:>4}", "NextTX", "NextRX", "Flgs")
    }

    fn row(&self, out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer) = (self.local.to_string(), self.peer.to_string());
        let (tos, w) = (self.tos.unwrap_or(0), layout.width());
        write!(out, "{local:>w$} {peer:>w$} {tos:>4} ")?;
        write!(
            out,
            "{:>16} {:>16} {}",
            self.next_tx,
            self.next_rx,
            self.flags.letters()
        )
    }
}

impl Row for Message {
    fn header(out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer, w) = ("LocalAddr", "RemoteAddr", layout.width());
        write!(out, "{local:>w$} {:>5} {peer:>w$} {:>5} ", "LPort", "RPort")?;
        write!(out, "{:>4} {:>16} {:>10}", "Tos", "Seq", "Bytes")
    }

    fn row(&self, out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer) = (self.local.to_string(), self.peer.to_string());
        let (lport, rport, w) = (self.local_port, self.peer_port, layout.width());
        write!(out, "{local:>w$} {lport:>5} {peer:>w$} {rport:>5} ")?;
        write!(out, "{:>4} {:>16} {:>10}", self.tos, self.seq, self.bytes)
    }
}

impl Row for TcpConnection {
    fn header(out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer, w) = ("LocalAddr", "RemoteAddr", layout.width());
        write!(out, "{local:>w$} {:>5} {peer:>w$} {:>5} ", "LPort", "RPort")?;
        write!(out, "{:>10} {:>10} ", "HdrRemain", "DataRemain")?;
        write!(
            out,
            "{:>10} {:>10} {:>10}",
            "SentNxt", "ExpectUna", "SeenUna"
        )
    }

    fn row(&self, out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer) = (self.local.to_string(), self.peer.to_string());
        let (lport, rport, w) = (self.local_port, self.peer_port, layout.width());
        write!(out, "{local:>w$} {lport:>5} {peer:>w$} {rport:>5} ")?;
        write!(
            out,
            "{:>10} {:>10} ",
            self.header_remaining, self.data_remaining
        )?;
        write!(
            out,
            "{:>10} {:>10} {:>10}",
            self.sent_next, self.expected_una, self.seen_una
        )
    }
}

impl Row for IbConnection {
    fn header(out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer, w) = ("LocalAddr", "RemoteAddr", layout.width());
        write!(out, "{local:>w$} {peer:>w$} {:>4} {:>3} ", "Tos", "SL")?;
        write!(out, "{:>32} {:>32}", "LocalDev", "RemoteDev")?;
        let columns = layout.columns;
        columns.map_or(Ok(()), |columns| columns.header(out))
    }

    fn row(&self, out: &mut String, layout: Layout) -> fmt::Result {
        let (local, peer) = (self.local.to_string(), self.peer.to_string());
        let (gid, peer_gid) = (self.local_gid.to_string(), self.peer_gid.to_string());
        let w = layout.width();
        write!(
            out,
            "{local:>w$} {peer:>w$} {:>4} {:>3} ",
            self.tos, self.sl
        )?;
        write!(out, "{gid:>32} {peer_gid:>32}")?;
        if let Some(columns) = layout.columns {
            columns.row(self, out)?;
        }
        if layout.verbose {
            write!(out, "  send_wr={}, recv_wr={}", self.send_wr, self.recv_wr)?;
            write!(out, ", send_sge={}", self.send_sge)?;
            write!(out, ", rdma_mr_max={}", self.rdma_mr_max)?;
            write!(out, ", rdma_mr_size={}", self.rdma_mr_size)?;
            write!(out, ", cache_allocs={}", self.cache_allocs)?;
        }
        match &self.details {
            Some(more) if layout.verbose => {
                write!(out, ", frag={}, qp_num={}", more.frag, more.qp_num)?;
                write!(out, ", dst_qp_num={}", more.dst_qp_num)?;
                write!(out, ", scq_vector={}", more.scq_vector)?;
                write!(out, ", rcq_vector={}", more.rcq_vector)?;
                more.cpu.map_or(Ok(()), |cpu| write!(out, ", cpu={cpu}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ConnectionFlags, Details};

    const V4: Layout = Layout {
        family: Family::V4,
        verbose: false,
        columns: None,
    };

    fn lines<R: Row>(title: &str, row: R, layout: Layout) -> Vec<String> {
        let text = table(title, &[row], layout).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn counters() {
        let counter = Counter {
            name: "conn_reset".to_owned(),
            value: 12,
        };
        assert_eq!(
            lines("Counters", counter, V4),
            [
                "",
                "Counters:",
                "                     CounterName            Value",
                "                      conn_reset               12",
            ]
        );
    }

    #[test]
    fn connections_of_both_widths() {
        let connection = Connection {
            local: [10, 0, 0, 1].into(),
            peer: "fd00::2".parse().unwrap(),
            transport: "infiniband".to_owned(),
            tos: None,
            next_tx: 499_995,
            next_rx: 7,
            flags: ConnectionFlags::from_bits(6),
        };
        assert_eq!(
            lines("RDS Connections", connection.clone(), V4)[2..],
            [
                "      LocalAddr      RemoteAddr  Tos           NextTX           NextRX Flgs",
                "       10.0.0.1         fd00::2    0           499995                7 -cC-",
            ]
        );
        let v6 = Layout {
            family: Family::V6,
            ..V4
        };
        let wide = &lines("RDS Connections", connection, v6)[3];
        assert_eq!(wide.find("10.0.0.1"), Some(37 - 8));
    }

    #[test]
    fn sockets_and_messages() {
        let socket = Socket {
            bound: [10, 0, 0, 1].into(),
            bound_port: 4001,
            connected: [0, 0, 0, 0].into(),
            connected_port: 0,
            sndbuf: 106_496,
            rcvbuf: 106_496,
            inode: 12345,
        };
        assert_eq!(
            lines("RDS Sockets", socket, V4)[2..],
            [
                "      BoundAddr BPort        ConnAddr CPort     SndBuf     RcvBuf    Inode",
                "       10.0.0.1  4001         0.0.0.0     0     106496     106496    12345",
            ]
        );
        let message = Message {
            local: [10, 0, 0, 1].into(),
            local_port: 4001,
            peer: [10, 0, 0, 2].into(),
            peer_port: 4002,
            tos: 4,
            seq: 17,
            bytes: 4096,
            flags: 0,
        };
        assert_eq!(
            lines("Receive Message Queue", message, V4)[1..],
            [
                "Receive Message Queue:",
                "      LocalAddr LPort      RemoteAddr RPort  Tos              Seq      Bytes",
                "       10.0.0.1  4001        10.0.0.2  4002    4               17       4096",
            ]
        );
    }

    #[test]
    fn tcp_connections() {
        let connection = TcpConnection {
            local: [10, 0, 0, 1].into(),
            local_port: 16385,
            peer: [10, 0, 0, 2].into(),
            peer_port: 40000,
            header_remaining: 48,
            data_remaining: 0,
            sent_next: 1,
            expected_una: 2,
            seen_una: 3,
            tos: Some(0),
        };
        assert_eq!(
            lines("TCP Connections", connection, V4)[2..],
            [
                "      LocalAddr LPort      RemoteAddr RPort  HdrRemain DataRemain    SentNxt  ExpectUna    SeenUna",
                "       10.0.0.1 16385        10.0.0.2 40000         48          0          1          2          3",
            ]
        );
    }

    #[test]
    fn ib_connections_say_more_if_asked() {
        let connection = IbConnection {
            local: [10, 0, 0, 1].into(),
            peer: [10, 0, 0, 2].into(),
            local_gid: "fe80::1".parse().unwrap(),
            peer_gid: "::ffff:10.0.0.2".parse().unwrap(),
            tos: 4,
            sl: 3,
            send_wr: 256,
            recv_wr: 1024,
            send_sge: 2,
            rdma_mr_max: 8,
            rdma_mr_size: 9,
            cache_allocs: 64,
            details: None,
        };
        let brief = lines("RDS IB Connections", connection.clone(), V4);
        assert_eq!(
            brief[2..],
            [
                "      LocalAddr      RemoteAddr  Tos  SL                         LocalDev                        RemoteDev",
                "       10.0.0.1        10.0.0.2    4   3                          fe80::1                  ::ffff:10.0.0.2",
            ]
        );
        let verbose = Layout {
            verbose: true,
            ..V4
        };
        let more = "  send_wr=256, recv_wr=1024, send_sge=2, rdma_mr_max=8, rdma_mr_size=9, cache_allocs=64";
        let long = lines("RDS IB Connections", connection.clone(), verbose);
        assert_eq!(long[3], format!("{}{more}", brief[3]));

        let details = Details {
            qp_num: 17,
            dst_qp_num: -1,
            r_read_bytes: 1536,
            scq_vector: 2,
            rcq_vector: 2,
            cpu: Some(1),
            ..Details::default()
        };
        let connection = IbConnection {
            details: Some(details),
            ..connection
        };
        let asked_for = Layout {
            columns: "cache_allocs,r_read_bytes".parse().ok(),
            ..V4
        };
        let wide = lines("RDS IB Connections", connection.clone(), asked_for);
        let header = "    SrcQPNo    DstQPNo   Cache Allocs   R_read_bytes KiB";
        let row = "         17         -1             64               1.50";
        assert_eq!(wide[2], format!("{}{header}", brief[2]));
        assert_eq!(wide[3], format!("{}{row}", brief[3]));
        let long = lines("RDS IB Connections", connection, verbose);
        let pair = "frag=0, qp_num=17, dst_qp_num=-1, scq_vector=2, rcq_vector=2, cpu=1";
        assert_eq!(long[3], format!("{}{more}, {pair}", brief[3]));
    }
}
