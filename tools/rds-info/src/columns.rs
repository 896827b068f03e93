// SPDX-License-Identifier: GPL-2.0
//! The optional columns for the fields of a queue pair that only Oracle's kernels and `rds_rust`
//! report.

use std::convert::Infallible;
use std::fmt::{self, Write};
use std::str::FromStr;

use crate::record::{Details, IbConnection};

/// A column: its name, its title, its width, and its content.
struct Column(
    &'static str,
    &'static str,
    usize,
    fn(&IbConnection, Details) -> String,
);

fn kib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1024.0)
}

/// All columns in the order of the output. A field that the kernel does not report is 0, as in
/// Oracle's tool. Only the last column is not of that tool.
const ALL: [Column; 16] = [
    Column("cache_allocs", "Cache Allocs", 15, |x, _| {
        x.cache_allocs.to_string()
    }),
    Column("recv_alloc_ctr", "Recv_alloc_ctr", 15, |_, x| {
        x.recv_alloc_ctr.to_string()
    }),
    Column("recv_free_ctr", "Recv_free_ctr", 15, |_, x| {
        x.recv_free_ctr.to_string()
    }),
    Column("send_alloc_ctr", "Send_alloc_ctr", 15, |_, x| {
        x.send_alloc_ctr.to_string()
    }),
    Column("send_free_ctr", "Send_free_ctr", 15, |_, x| {
        x.send_free_ctr.to_string()
    }),
    Column("send_bytes", "Send_bytes KiB", 16, |_, x| kib(x.send_bytes)),
    Column("recv_bytes", "Recv_bytes KiB", 16, |_, x| kib(x.recv_bytes)),
    Column("r_read_bytes", "R_read_bytes KiB", 19, |_, x| {
        kib(x.r_read_bytes)
    }),
    Column("r_write_bytes", "R_write_bytes KiB", 19, |_, x| {
        kib(x.r_write_bytes)
    }),
    Column("tx_poll_ts", "Tx_poll_ts_ms", 15, |_, x| {
        x.tx_poll_ts.to_string()
    }),
    Column("rx_poll_ts", "Rx_poll_ts_ms", 15, |_, x| {
        x.rx_poll_ts.to_string()
    }),
    Column("tx_poll_cnt", "Tx_poll_cnt", 15, |_, x| {
        x.tx_poll_cnt.to_string()
    }),
    Column("rx_poll_cnt", "Rx_poll_cnt", 15, |_, x| {
        x.rx_poll_cnt.to_string()
    }),
    Column("scq_vector", "Scq_vector", 15, |_, x| {
        x.scq_vector.to_string()
    }),
    Column("rcq_vector", "Rcq_vector", 15, |_, x| {
        x.rcq_vector.to_string()
    }),
    Column("cpu", "CPU", 5, |_, x| {
        x.cpu.unwrap_or_default().to_string()
    }),
];

/// The selected columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns([bool; ALL.len()]);

/// Parsing accepts any text between the names, and ignores any other text, as Oracle's tool does.
impl FromStr for Columns {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let text = text.to_lowercase();
        Ok(Columns(ALL.map(|Column(name, ..)| text.contains(name))))
    }
}

impl Columns {
    fn asked_for(self) -> impl Iterator<Item = Column> {
        let all = ALL.into_iter().zip(self.0);
        all.filter_map(|(column, asked_for)| asked_for.then_some(column))
    }

    /// Writes the end of the line above the rows. The numbers of queue pairs come before the
    /// selected columns.
    pub(crate) fn header(self, out: &mut String) -> fmt::Result {
        write!(out, " {:>10} {:>10}", "SrcQPNo", "DstQPNo")?;
        let mut all = self.asked_for();
        all.try_for_each(|Column(_, title, width, _)| write!(out, "{title:>width$}"))
    }

    /// Writes the end of a row.
    pub(crate) fn row(self, connection: &IbConnection, out: &mut String) -> fmt::Result {
        let more = connection.details.unwrap_or_default();
        write!(out, " {:>10} {:>10}", more.qp_num, more.dst_qp_num)?;
        let mut all = self.asked_for();
        all.try_for_each(|Column(_, _, width, value)| {
            write!(out, "{:>width$}", value(connection, more))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &str) -> String {
        let mut out = String::new();
        let Ok(columns) = names.parse::<Columns>();
        columns.header(&mut out).unwrap();
        out
    }

    #[test]
    fn names_are_found_wherever_they_are() {
        let none = "    SrcQPNo    DstQPNo";
        for text in ["", "bytes", "send bytes"] {
            assert_eq!(header(text), none, "{text}");
        }
        let both = format!("{none}  Send_bytes KiB     Rcq_vector");
        for text in [
            "send_bytes,rcq_vector",
            "RCQ_vector, Send_Bytes",
            "x send_bytes;rcq_vector;y",
        ] {
            assert_eq!(header(text), both, "{text}");
        }
        let all: Vec<_> = ALL.iter().map(|Column(name, ..)| *name).collect();
        let Ok(columns) = all.join(",").parse::<Columns>();
        assert_eq!(columns.0, [true; ALL.len()]);
    }

    #[test]
    fn each_name_stands_for_one_column() {
        for Column(name, ..) in ALL {
            let Ok(columns) = name.parse::<Columns>();
            assert_eq!(columns.asked_for().count(), 1, "{name}");
        }
    }
}
