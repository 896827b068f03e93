// SPDX-License-Identifier: GPL-2.0

//! Tests of `uapi/info.rs`: each record has the layout that a C compiler gives the structure.

use crate::proto::{
    info::{
        PayloadBytes,
        QueuePair,
        RdmaPath,
        TcpProgress, //
    },
    path_history::{
        DropReason,
        PathTimes, //
    }, //
};
use crate::uapi::info::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const L4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const F4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const L6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const F6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Returns the bytes of a record, after checking their number against its size.
fn bytes<E: Emitted>(value: &E, family: Family) -> Option<Vec<u8>> {
    let bytes = value.emit(family)?.as_slice().to_vec();
    assert_eq!(bytes.len(), E::size(family));
    Some(bytes)
}

fn joined(parts: &[&[u8]]) -> Option<Vec<u8>> {
    Some(parts.concat())
}

/// Two addresses, and their bytes in the records for IPv4 and for IPv6.
type Shown = ((Ipv6Addr, Ipv6Addr), Option<Vec<u8>>, Vec<u8>);

fn pairs() -> [Shown; 2] {
    let mapped = (L4.to_ipv6_mapped(), F4.to_ipv6_mapped());
    let four = [L4.octets(), F4.octets()].concat();
    let six = [mapped.0.octets(), mapped.1.octets()].concat();
    [
        (mapped, Some(four), six),
        ((L6, F6), None, [L6.octets(), F6.octets()].concat()),
    ]
}

#[test]
fn counter() {
    let long = "a name that is longer than its field";
    for (name, shown) in [("conn_reset", "conn_reset"), (long, &long[..31])] {
        let mut field = shown.as_bytes().to_vec();
        field.resize(32, 0);
        let record = CounterRecord { name, value: 7 };
        assert_eq!(
            bytes(&record, Family::V4),
            joined(&[&field, &7u64.to_ne_bytes()])
        );
    }
}

#[test]
fn connection() {
    for ((laddr, faddr), four, six) in pairs() {
        let record = ConnectionRecord {
            next_tx: 0x0102,
            next_rx: 0x0304,
            laddr,
            faddr,
            transport: "infiniband",
            flags: 4,
            tos: 9,
        };
        let numbers = [0x0102u64.to_ne_bytes(), 0x0304u64.to_ne_bytes()].concat();
        let name = b"infiniband\0\0\0\0\0\0";
        assert_eq!(
            bytes(&record, Family::V4),
            four.and_then(|four| joined(&[&numbers, &four, name, &[4, 9]]))
        );
        assert_eq!(
            bytes(&record, Family::V6),
            joined(&[&numbers, &six, name, &[4]])
        );
    }
}

#[test]
fn message() {
    for ((laddr, faddr), four, six) in pairs() {
        let record = MessageRecord {
            sequence: 5,
            len: 6,
            laddr,
            faddr,
            lport: 0x1234,
            fport: 0x5678,
            tos: 9,
        };
        let head = [&5u64.to_ne_bytes()[..], &6u32.to_ne_bytes()].concat();
        let tail = [0x12, 0x34, 0x56, 0x78, 0, 9];
        assert_eq!(
            bytes(&record, Family::V4),
            four.and_then(|four| joined(&[&head, &four, &tail]))
        );
        assert_eq!(bytes(&record, Family::V6), joined(&[&head, &six, &tail]));
    }
}

#[test]
fn socket() {
    for ((laddr, faddr), four, six) in pairs() {
        let record = SocketRecord {
            sndbuf: 1,
            rcvbuf: 2,
            bound: (laddr, 0x1234),
            connected: (faddr, 0x5678),
            inode: 3,
        };
        let head = 1u32.to_ne_bytes();
        let tail = [
            &[0x12, 0x34, 0x56, 0x78][..],
            &2u32.to_ne_bytes(),
            &3u64.to_ne_bytes(),
        ]
        .concat();
        assert_eq!(
            bytes(&record, Family::V4),
            four.and_then(|four| joined(&[&head, &four, &tail]))
        );
        assert_eq!(bytes(&record, Family::V6), joined(&[&head, &six, &tail]));
    }
}

#[test]
fn socket_without_a_peer() {
    let record = SocketRecord {
        sndbuf: 0,
        rcvbuf: 0,
        bound: (L4.to_ipv6_mapped(), 1),
        connected: (Ipv6Addr::UNSPECIFIED, 0),
        inode: 0,
    };
    let shown = bytes(&record, Family::V4).expect("it is bound to an IPv4 address");
    assert_eq!(shown[4..16], [192, 0, 2, 1, 0, 0, 0, 0, 0, 1, 0, 0]);
    let shown = bytes(&record, Family::V6).expect("there is a record for everything");
    assert_eq!(shown[20..36], [0; 16]);
}

#[test]
fn rdma_connection() {
    for ((laddr, faddr), four, six) in pairs() {
        let record = RdmaConnection {
            laddr,
            faddr,
            tos: 9,
            path: RdmaPath {
                local_gid: [1; 16],
                peer_gid: [2; 16],
                max_send_wr: 3,
                max_recv_wr: 4,
                max_send_sge: 5,
                service_level: 6,
            },
        };
        let numbers = [3u32, 4, 5, 0, 0].map(u32::to_ne_bytes).concat();
        let rest = [&[1; 16][..], &[2; 16], &numbers, &[9, 6], &[0; 6]].concat();
        assert_eq!(
            bytes(&record, Family::V4),
            four.as_ref().and_then(|four| joined(&[four, &rest]))
        );
        assert_eq!(bytes(&record, Family::V6), joined(&[&six, &rest]));

        // The record of UEK begins with the same fields.
        let pair = |queue_pair| QueuePairRecord {
            connection: RdmaConnection {
                laddr,
                faddr,
                tos: 9,
                path: record.path,
            },
            payload: PayloadBytes {
                acked: 11,
                received: 12,
            },
            queue_pair,
        };
        let more = |numbers: [u32; 3], vector: i32, cpu: i32| {
            let [fragment, own, peer] = numbers;
            let words = [fragment, 0, own, 0, 0, peer, 0, 0, 0].map(u32::to_ne_bytes);
            let long = [11u64, 12, 0, 0, 0, 0, 0, 0].map(u64::to_ne_bytes);
            let last = [vector, vector, cpu, 0].map(i32::to_ne_bytes);
            [words.concat(), long.concat(), last.concat()].concat()
        };
        let up = QueuePair {
            fragment: 4096,
            own: 17,
            peer: 18,
            vector: 2,
            cpu: Some(1),
        };
        let idle = QueuePair { cpu: None, ..up };
        for (state, rest_of_it) in [
            (Some(up), more([4096, 17, 18], 2, 1)),
            (Some(idle), more([4096, 17, 18], 2, -1)),
            (None, more([0; 3], -1, -1)),
        ] {
            let shown = pair(state);
            assert_eq!(
                bytes(&shown, Family::V4),
                four.as_ref()
                    .and_then(|four| joined(&[four, &rest, &rest_of_it]))
            );
            assert_eq!(
                bytes(&shown, Family::V6),
                joined(&[&six, &rest, &rest_of_it])
            );
        }
    }
    let sizes = [Family::V4, Family::V6].map(QueuePairRecord::size);
    assert_eq!(sizes, [184, 208]);
    assert_eq!(
        (
            RDS_INFO_RDMA_CONNECTION_STATS,
            RDS6_INFO_RDMA_CONNECTION_STATS
        ),
        (10018, 10019)
    );
}

#[test]
fn tcp_socket() {
    for ((laddr, faddr), four, six) in pairs() {
        let record = TcpConnection {
            laddr,
            faddr,
            progress: TcpProgress {
                local_port: 0x1234,
                peer_port: 0x5678,
                header_left: 1,
                payload_left: 2,
                last_begin: 3,
                last_end: 4,
                una: 5,
            },
        };
        // A port follows each address.
        let ends = |addrs: &[u8]| {
            let (local, peer) = addrs.split_at(addrs.len() / 2);
            [local, &[0x12, 0x34], peer, &[0x56, 0x78]].concat()
        };
        let left = [1u64, 2].map(u64::to_ne_bytes).concat();
        let rest = [left, [3u32, 4, 5].map(u32::to_ne_bytes).concat()].concat();
        assert_eq!(
            bytes(&record, Family::V4),
            four.and_then(|four| joined(&[&ends(&four), &rest, &[0]]))
        );
        assert_eq!(bytes(&record, Family::V6), joined(&[&ends(&six), &rest]));
    }
}

#[test]
fn path() {
    for (((laddr, faddr), four, six), cpu) in pairs().into_iter().zip([Some(15), None]) {
        let record = PathRecord {
            laddr,
            faddr,
            transport: "infiniband",
            tos: 9,
            index: 7,
            flags: 4,
            times: PathTimes {
                attempted: 0x0102,
                connected: -2,
                reset: 3,
                attempts: 5,
                reason: DropReason::Disconnected,
            },
            next_tx: 11,
            next_rx: 12,
            payload: PayloadBytes {
                acked: 13,
                received: 1 << 40,
            },
            retransmissions: 14,
            cpu,
        };
        let times = [0x0102i64, -2, 3].map(i64::to_ne_bytes).concat();
        let numbers = [26u32, 5, 7].map(u32::to_ne_bytes).concat();
        let name = b"infiniband\0\0\0\0\0\0";
        let traffic = [11u64, 12, 13, 1 << 40, 14].map(u64::to_ne_bytes).concat();
        let cpu = cpu.map_or(-1i32, |cpu| cpu as i32).to_ne_bytes();
        let shown = joined(&[&six, name, &[9, 0], &times, &numbers, &[4], &traffic, &cpu]);
        assert_eq!(bytes(&record, Family::V6), shown);
        // The table for IPv4 has the same addresses, and omits the others.
        assert_eq!(bytes(&record, Family::V4), four.and(shown));
        assert_eq!(PathRecord::size(Family::V4), 131);
    }
    assert_eq!((RDS_INFO_CONN_PATHS, RDS6_INFO_CONN_PATHS), (10020, 10021));
}
