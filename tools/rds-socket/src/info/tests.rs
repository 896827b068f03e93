// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Records as a kernel writes them, and malformed records.

use proptest::prelude::*;

use std::net::{IpAddr, Ipv6Addr};

use super::*;

fn table(records: &[&[u8]]) -> Table {
    Table {
        data: records.concat(),
        each: records[0].len(),
    }
}

fn one<R: Record + std::fmt::Debug>(record: &[u8], family: Family) -> R {
    let mut all = decode(&table(&[record]), family).unwrap();
    assert_eq!(all.len(), 1);
    all.pop().unwrap()
}

fn mapped(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[10..].copy_from_slice(&[255, 255, 10, 0, 0, last]);
    address
}

fn counter(name: &str, value: u64) -> Vec<u8> {
    let mut record = name.as_bytes().to_vec();
    record.resize(32, 0);
    record.extend(value.to_ne_bytes());
    record
}

#[test]
fn counters() {
    let records = [counter("conn_reset", 3), counter(&"x".repeat(32), u64::MAX)];
    let found: Vec<Counter> = decode(&table(&[&records[0], &records[1]]), Family::V4).unwrap();
    assert_eq!((found[0].name.as_str(), found[0].value), ("conn_reset", 3));
    assert_eq!((found[1].name.len(), found[1].value), (32, u64::MAX));
}

#[test]
fn connections() {
    let mut record = [5u64.to_ne_bytes(), 7u64.to_ne_bytes()].concat();
    record.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    record.extend(b"infiniband\0\0\0\0\0\0");
    record.extend([5, 4]);
    assert_eq!(record.len(), 42);
    let wanted = Connection {
        local: [10, 0, 0, 1].into(),
        peer: [10, 0, 0, 2].into(),
        transport: "infiniband".to_owned(),
        tos: Some(4),
        next_tx: 5,
        next_rx: 7,
        flags: ConnectionFlags(5),
    };
    assert_eq!(one::<Connection>(&record, Family::V4), wanted);
    assert_eq!(wanted.flags.letters(), "s-C-");
    assert_eq!(
        serde_json::to_value(wanted.flags).unwrap(),
        serde_json::json!(["sending", "connected"])
    );
    // A connection that has released its queue pair looks like an established one, except in JSON.
    let resting = ConnectionFlags(0x84);
    assert_eq!(resting.letters(), "--C-");
    assert_eq!(
        serde_json::to_value(resting).unwrap(),
        serde_json::json!(["connected", "resting"])
    );
}

#[test]
fn connections_of_both_families() {
    let mut record = [5u64.to_ne_bytes(), 7u64.to_ne_bytes()].concat();
    record.extend(mapped(1));
    record.extend("fd00::2".parse::<Ipv6Addr>().unwrap().octets());
    record.extend(b"tcp\0\0\0\0\0\0\0\0\0\0\0\0\0");
    record.push(2);
    assert_eq!(record.len(), 65);
    let found: Connection = one(&record, Family::V6);
    assert_eq!(found.local, "10.0.0.1".parse::<IpAddr>().unwrap());
    assert_eq!(found.peer, "fd00::2".parse::<IpAddr>().unwrap());
    assert_eq!((found.tos, found.flags), (None, ConnectionFlags(2)));
    // Oracle's kernel has this field.
    record.push(9);
    assert_eq!(one::<Connection>(&record, Family::V6).tos, Some(9));
}

#[test]
fn messages() {
    let mut record = 9u64.to_ne_bytes().to_vec();
    record.extend(4096u32.to_ne_bytes());
    record.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 0, 2, 0, 1, 8]);
    assert_eq!(record.len(), 26);
    let found: Message = one(&record, Family::V4);
    assert_eq!((found.local_port, found.peer_port), (256, 512));
    assert_eq!(
        (found.seq, found.bytes, found.flags, found.tos),
        (9, 4096, 1, 8)
    );

    record.splice(12..20, [mapped(1), mapped(2)].concat());
    assert_eq!(record.len(), 50);
    assert_eq!(one::<Message>(&record, Family::V6), found);
}

#[test]
fn sockets() {
    let mut record = 1000u32.to_ne_bytes().to_vec();
    record.extend([10, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0]);
    record.extend(2000u32.to_ne_bytes());
    record.extend(77u64.to_ne_bytes());
    assert_eq!(record.len(), 28);
    let found: Socket = one(&record, Family::V4);
    assert_eq!(found.bound, "10.0.0.1".parse::<IpAddr>().unwrap());
    assert_eq!(found.connected, "0.0.0.0".parse::<IpAddr>().unwrap());
    assert_eq!((found.bound_port, found.connected_port), (257, 0));
    assert_eq!((found.sndbuf, found.rcvbuf, found.inode), (1000, 2000, 77));
    // The first kernels with RDS had no inode.
    assert_eq!(one::<Socket>(&record[..20], Family::V4).inode, 0);
}

#[test]
fn tcp_connections() {
    let mut record = vec![10, 0, 0, 1, 0x40, 1, 10, 0, 0, 2, 0, 9];
    record.extend([48u64.to_ne_bytes(), 5u64.to_ne_bytes()].concat());
    record.extend([1u32.to_ne_bytes(), 2u32.to_ne_bytes(), 3u32.to_ne_bytes()].concat());
    record.push(6);
    assert_eq!(record.len(), 41);
    let found: TcpConnection = one(&record, Family::V4);
    assert_eq!((found.local_port, found.peer_port), (16385, 9));
    assert_eq!((found.header_remaining, found.data_remaining), (48, 5));
    assert_eq!(
        (found.sent_next, found.expected_una, found.seen_una),
        (1, 2, 3)
    );
    assert_eq!(found.tos, Some(6));
    assert_eq!(one::<TcpConnection>(&record[..40], Family::V4).tos, None);
}

#[test]
fn ib_connections() {
    let mut record = vec![10, 0, 0, 1, 10, 0, 0, 2];
    record.extend([[1; 16], [2; 16]].concat());
    (1..=5u32).for_each(|x| record.extend(x.to_ne_bytes()));
    record.extend([4, 3, 0, 0]);
    record.extend(64u32.to_ne_bytes());
    assert_eq!(record.len(), 68);
    let found: IbConnection = one(&record, Family::V4);
    assert_eq!(
        (found.local_gid, found.peer_gid),
        ([1; 16].into(), [2; 16].into())
    );
    assert_eq!(
        [
            found.send_wr,
            found.recv_wr,
            found.send_sge,
            found.rdma_mr_max,
            found.rdma_mr_size
        ],
        [1, 2, 3, 4, 5]
    );
    assert_eq!((found.tos, found.sl, found.cache_allocs), (4, 3, 64));

    record.splice(..8, [mapped(1), mapped(2)].concat());
    assert_eq!(record.len(), 92);
    assert_eq!(one::<IbConnection>(&record, Family::V6), found);
    assert_eq!(found.details, None);
    let json = serde_json::to_value(found).unwrap();
    assert_eq!(json.as_object().unwrap().len(), 12);
}

#[test]
fn ib_connections_of_oracle() {
    let mut long = vec![0; 68];
    long.extend(16384u32.to_ne_bytes());
    long.extend([7u16.to_ne_bytes(), 8u16.to_ne_bytes()].concat());
    (11..=16u32).for_each(|x| long.extend(x.to_ne_bytes()));
    let numbers = [1 << 40, 2, 3, 4, 5, 6, 7, 8u64];
    let rest: Vec<u8> = numbers.into_iter().flat_map(u64::to_ne_bytes).collect();
    let vectors = [(-1i32).to_ne_bytes(), 9i32.to_ne_bytes()].concat();
    // Numbers of 64 bits begin at a multiple of eight.
    let short = [&long[..], &[0; 4], &rest, &vectors].concat();
    assert_eq!(short.len(), 176);
    let found: IbConnection = one(&short, Family::V4);
    let more = found.details.unwrap();
    assert_eq!((more.frag, more.flow_ctl_send_credit), (16384, 8));
    assert_eq!(
        (more.qp_num, more.dst_qp_num, more.send_free_ctr),
        (11, 14, 16)
    );
    assert_eq!((more.send_bytes, more.rx_poll_cnt), (1 << 40, 8));
    assert_eq!((more.scq_vector, more.rcq_vector, more.cpu), (-1, 9, None));
    let json = serde_json::to_value(found).unwrap();
    assert_eq!((&json["tos"], &json["qp_num"]), (&0.into(), &11.into()));

    let wide = [&[0; 24], &long[..], &[0; 4], &rest, &vectors].concat();
    assert_eq!(one::<IbConnection>(&wide, Family::V6).details, Some(more));
    // The record of rds_rust is longer.
    let ours = [&short[..], &3i32.to_ne_bytes(), &[0; 4]].concat();
    let ours = one::<IbConnection>(&ours, Family::V4).details.unwrap();
    assert_eq!((ours.rcq_vector, ours.cpu), (9, Some(3)));
    // A record of an older kernel.
    let old = one::<IbConnection>(&short[..80], Family::V4)
        .details
        .unwrap();
    assert_eq!((old.qp_num, old.recv_alloc_ctr), (11, 0));
}

#[test]
fn longer_records_keep_their_distance() {
    let records = [counter("a", 1), counter("b", 2)].map(|mut record| {
        record.extend([0xee; 24]);
        record
    });
    let found: Vec<Counter> = decode(&table(&[&records[0], &records[1]]), Family::V4).unwrap();
    assert_eq!((found[1].name.as_str(), found[1].value), ("b", 2));
}

#[test]
fn a_cut_table_is_none() {
    let data = counter("a", 1);
    for (data, each) in [
        (&data[..], 0),
        (&data[..], 41),
        (&data[..39], 40),
        (&data[..], 39),
    ] {
        let data = data.to_vec();
        assert_eq!(decode::<Counter>(&Table { data, each }, Family::V4), None);
    }
    assert_eq!(
        decode::<Counter>(&Table::default(), Family::V4),
        Some(vec![])
    );
}

/// Decodes any bytes as each kind of record.
fn decode_all(table: &Table, family: Family) -> [Option<usize>; 7] {
    fn count<R: Record + serde::Serialize>(table: &Table, family: Family) -> Option<usize> {
        let records = decode::<R>(table, family)?;
        serde_json::to_string(&records).unwrap();
        Some(records.len())
    }
    [
        count::<Counter>(table, family),
        count::<Connection>(table, family),
        count::<Message>(table, family),
        count::<Socket>(table, family),
        count::<TcpConnection>(table, family),
        count::<IbConnection>(table, family),
        count::<Paths>(table, family),
    ]
}

proptest! {
    #[test]
    fn any_bytes_decode_or_not(
        data in prop::collection::vec(any::<u8>(), 0..400),
        each in prop_oneof![0usize..120, any::<usize>()],
        v6 in any::<bool>(),
    ) {
        let family = if v6 { Family::V6 } else { Family::V4 };
        let table = Table { data, each };
        let whole = table.data.is_empty() || (each > 0 && table.data.len() % each == 0);
        let wanted = whole.then(|| table.data.len().checked_div(each).unwrap_or(0));
        prop_assert_eq!(decode_all(&table, family), [wanted; 7]);
    }

    #[test]
    fn whole_records_of_any_size(
        each in 1usize..120,
        count in 0usize..9,
        seed in any::<u8>(),
        v6 in any::<bool>(),
    ) {
        let family = if v6 { Family::V6 } else { Family::V4 };
        let byte = |i: usize| (i as u8).wrapping_mul(31).wrapping_add(seed);
        let table = Table { data: (0..each * count).map(byte).collect(), each };
        prop_assert_eq!(decode_all(&table, family), [Some(count); 7]);
    }
}
