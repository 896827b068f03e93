// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Records of Oracle's kernels: more of each queue pair, and the paths of connections. `rds_rust`
//! has both.

use std::net::IpAddr;

use super::record::{ConnectionFlags, Decode, Fields};

/// The fields of `struct rds_info_rdma_connection` on Oracle's kernels that Linux does not have,
/// and the CPU, which only `rds_rust` reports. A number that a kernel does not count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Details {
    /// Bytes of a fragment.
    pub frag: u32,
    /// Posted receives that are not yet advertised to the peer.
    pub flow_ctl_post_credit: u16,
    /// Receives of the peer that may be used.
    pub flow_ctl_send_credit: u16,
    /// The number of the queue pair.
    pub qp_num: i32,
    /// Allocated buffers for receives.
    pub recv_alloc_ctr: u32,
    /// Freed buffers for receives.
    pub recv_free_ctr: u32,
    /// The number of the peer's queue pair.
    pub dst_qp_num: i32,
    /// Allocated buffers for sends.
    pub send_alloc_ctr: u32,
    /// Freed buffers for sends.
    pub send_free_ctr: u32,
    /// Bytes that were sent.
    pub send_bytes: u64,
    /// Bytes that were received.
    pub recv_bytes: u64,
    /// Bytes that were read from memory of the peer.
    pub r_read_bytes: u64,
    /// Bytes that were written to memory of the peer.
    pub r_write_bytes: u64,
    /// Time of the last poll of the send queue, in milliseconds.
    pub tx_poll_ts: u64,
    /// Time of the last poll of the receive queue, in milliseconds.
    pub rx_poll_ts: u64,
    /// Number of polls of the send queue.
    pub tx_poll_cnt: u64,
    /// Number of polls of the receive queue.
    pub rx_poll_cnt: u64,
    /// The completion vector of the send queue.
    pub scq_vector: i32,
    /// The completion vector of the receive queue.
    pub rcq_vector: i32,
    /// The CPU that has processed the last completions, or -1. `None`: the kernel does not report
    /// it.
    pub cpu: Option<i32>,
}

impl Details {
    /// Returns `None` if the record ends before these fields.
    pub(super) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        if fields.left() == 0 {
            return None;
        }
        let mut details = Details {
            frag: fields.u32(),
            flow_ctl_post_credit: fields.u16(),
            flow_ctl_send_credit: fields.u16(),
            qp_num: fields.i32(),
            recv_alloc_ctr: fields.u32(),
            recv_free_ctr: fields.u32(),
            dst_qp_num: fields.i32(),
            send_alloc_ctr: fields.u32(),
            send_free_ctr: fields.u32(),
            ..Details::default()
        };
        fields.align(8);
        for number in [
            &mut details.send_bytes,
            &mut details.recv_bytes,
            &mut details.r_read_bytes,
            &mut details.r_write_bytes,
            &mut details.tx_poll_ts,
            &mut details.rx_poll_ts,
            &mut details.tx_poll_cnt,
            &mut details.rx_poll_cnt,
        ] {
            *number = fields.u64();
        }
        details.scq_vector = fields.i32();
        details.rcq_vector = fields.i32();
        details.cpu = fields.maybe_i32();
        Some(details)
    }
}

/// Bytes of a path in a record, `struct rds_path_info`.
const PATH: usize = 37;

/// Bytes of [`Traffic`] behind the only path of a record.
const TRAFFIC: usize = 44;

/// Seconds since 1970; 0: it has not happened.
pub type Time = i64;

/// One of the paths of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Path {
    /// Its number.
    pub index: u32,
    /// Time of the last successful connect.
    pub connected: Time,
    /// Time of the last attempt to connect.
    pub attempted: Time,
    /// Time at which the path was last lost.
    pub reset: Time,
    /// Number of attempts since then.
    pub attempts: u32,
    /// Its state.
    pub flags: ConnectionFlags,
    /// The reason of the reset, as a number of the kernel.
    pub reason: u32,
    /// Its messages. Only `rds_rust` reports them.
    pub traffic: Option<Traffic>,
}

/// Messages of a path since the connection was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Traffic {
    /// Sequence number of the next message to the peer.
    pub next_tx: u64,
    /// Sequence number of the next message that is expected from the peer.
    pub next_rx: u64,
    /// Payload bytes that the peer has acknowledged.
    pub send_bytes: u64,
    /// Payload bytes that were received.
    pub recv_bytes: u64,
    /// Messages that were sent again.
    pub retransmissions: u64,
    /// CPU of the last completions or packets; `None` while the path is not up.
    pub cpu: Option<u32>,
}

impl Traffic {
    fn decode(fields: &mut Fields<'_>) -> Self {
        Traffic {
            next_tx: fields.u64(),
            next_rx: fields.u64(),
            send_bytes: fields.u64(),
            recv_bytes: fields.u64(),
            retransmissions: fields.u64(),
            cpu: fields.i32().try_into().ok(),
        }
    }
}

impl Path {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let mut time = || fields.i64();
        let (attempted, connected, reset) = (time(), time(), time());
        Path {
            attempted,
            connected,
            reset,
            reason: fields.u32(),
            attempts: fields.u32(),
            index: fields.u32(),
            flags: ConnectionFlags(fields.u8()),
            traffic: None,
        }
    }

    /// Returns the seconds for which the path was down before it was connected again.
    pub fn down(&self) -> Option<Time> {
        let up = self.flags.is_connected() && self.reset != 0;
        up.then(|| self.connected.saturating_sub(self.reset))
    }
}

/// A connection, `struct rds_info_connection_paths`. Its addresses are those of IPv6 in both
/// tables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Paths {
    /// The address of this machine.
    pub local: IpAddr,
    /// The address of the peer.
    pub peer: IpAddr,
    /// `infiniband` or `tcp`.
    pub transport: String,
    /// The type of service.
    pub tos: u8,
    /// One path, or several for a transport that has them.
    pub paths: Vec<Path>,
}

impl Decode for Paths {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let (local, peer) = (fields.long_address(), fields.long_address());
        let (transport, tos) = (fields.text::<16>(), fields.u8());
        // A connection with a single path has a count of 0.
        let count = usize::from(fields.u8().max(1)).min(fields.left() / PATH);
        let mut paths: Vec<_> = (0..count).map(|_| Path::decode(fields)).collect();
        // Records of Oracle's kernels end with a path, or with room for seven more.
        if let ([path], TRAFFIC) = (&mut paths[..], fields.left()) {
            path.traffic = Some(Traffic::decode(fields));
        }
        Paths {
            local,
            peer,
            transport,
            tos,
            paths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::{decode, Family, Table};

    fn path(index: u32, reset: Time, reason: u32, flags: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        for time in [1_700_000_000, 1_700_000_060, reset] {
            bytes.extend(Time::to_ne_bytes(time));
        }
        for number in [reason, 3, index] {
            bytes.extend(u32::to_ne_bytes(number));
        }
        bytes.push(flags);
        assert_eq!(bytes.len(), PATH);
        bytes
    }

    fn record(count: u8, paths: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for last in [1, 2] {
            bytes.extend([0; 10]);
            bytes.extend([255, 255, 10, 0, 0, last]);
        }
        bytes.extend(b"infiniband\0\0\0\0\0\0");
        bytes.extend([4, count]);
        bytes.extend(paths.concat());
        // Room for eight paths.
        bytes.resize(50 + 8 * PATH, 0);
        bytes
    }

    fn read(records: &[Vec<u8>]) -> Vec<Paths> {
        let data = records.concat();
        let each = records[0].len();
        decode(&Table { data, each }, Family::V4).unwrap()
    }

    #[test]
    fn records_are_read() {
        let one = record(0, &[path(0, 0, 0, 4)]);
        let two = record(2, &[path(0, 1_700_000_050, 26, 4), path(1, 9, 1, 2)]);
        let found = read(&[one.clone(), two.clone()]);
        assert_eq!(found[0].local, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(
            (found[0].transport.as_str(), found[0].tos),
            ("infiniband", 4)
        );
        assert_eq!(found[0].paths.len(), 1);
        let path = &found[1].paths[1];
        assert_eq!((path.index, path.reason, path.attempts), (1, 1, 3));
        assert_eq!(
            (path.connected, path.attempted),
            (1_700_000_060, 1_700_000_000)
        );
        let down: Vec<_> = found[1].paths.iter().map(Path::down).collect();
        assert_eq!(down, [Some(10), None]);
        // The kernel's count is larger than the number of paths.
        let short = record(255, &[])[..50 + 3 * PATH].to_vec();
        assert_eq!(read(&[short])[0].paths.len(), 3);
    }

    #[test]
    fn traffic_is_read_where_it_is() {
        let mut own = record(0, &[path(0, 0, 0, 4)])[..50 + PATH].to_vec();
        assert_eq!(read(std::slice::from_ref(&own))[0].paths[0].traffic, None);
        own.extend([7u64, 8, 9, 10, 11].map(u64::to_ne_bytes).concat());
        for (number, cpu) in [(3i32, Some(3)), (-1, None)] {
            let traffic = Traffic {
                next_tx: 7,
                next_rx: 8,
                send_bytes: 9,
                recv_bytes: 10,
                retransmissions: 11,
                cpu,
            };
            let whole = [&own[..], &number.to_ne_bytes()].concat();
            assert_eq!(read(&[whole])[0].paths[0].traffic, Some(traffic));
        }
        // Room for eight paths is not traffic.
        let uek = record(0, &[path(0, 0, 0, 4)]);
        assert_eq!(read(&[uek])[0].paths[0].traffic, None);
    }
}
