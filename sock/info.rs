// SPDX-License-Identifier: GPL-2.0

//! `RDS_INFO_*`: tables that `rds-info` reads.
//!
//! Each is an array of packed records. The call returns the size of one; a buffer that is too small
//! gets ENOSPC and the length that would do.
//!
//! Source: `include/uapi/linux/rds.h`.

use crate::kapi::{
    errno::Errno,
    net::{Sock, SockOptOut},
};
use crate::msg::Socket;
use kernel::prelude::*;

const COUNTERS: c_int = 10000;
const CONNECTIONS: c_int = 10001;

/// Bytes of a name in a record, with the NUL behind it.
const COUNTER_NAME: usize = 32;
const TRANSPORT_NAME: usize = 16;

/// Copies a name into a record's field; the last byte stays NUL.
fn put_name<const N: usize>(name: &str) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N.saturating_sub(1)).zip(name.bytes()) {
        *to = from;
    }
    field
}

/// Answers a request for a table. May sleep.
pub(super) fn get(sk: &Sock<Socket>, name: c_int, mut out: SockOptOut<'_>) -> Result<c_int> {
    if out.len() < 0 {
        return Err(EINVAL);
    }
    let mut table = KVVec::new();
    let record = match name {
        COUNTERS => {
            let mut result = Ok(());
            sk.node.for_each_counter(&mut |name, value| {
                if result.is_ok() {
                    result = counter(&mut table, name, value);
                }
            });
            result?;
            COUNTER_NAME + size_of::<u64>()
        }
        CONNECTIONS => connections(sk, &mut table)?,
        _ => return Err(Errno::NoProtocolOption.into()),
    };
    let room = usize::try_from(out.len()).unwrap_or(0);
    out.set_len(table.len());
    if table.len() > room {
        return Err(ENOSPC);
    }
    out.write(&table)?;
    c_int::try_from(record).map_err(|_| EOVERFLOW)
}

/// Adds a `struct rds_info_counter`.
fn counter(table: &mut KVVec<u8>, name: &str, value: u64) -> Result {
    table.extend_from_slice(&put_name::<COUNTER_NAME>(name), GFP_KERNEL)?;
    table.extend_from_slice(&value.to_ne_bytes(), GFP_KERNEL)?;
    Ok(())
}

/// `struct rds_info_connection`, 42 bytes, of the IPv4 connections in the caller's namespace.
fn connections(sk: &Sock<Socket>, table: &mut KVVec<u8>) -> Result<usize> {
    const RECORD: usize = 8 + 8 + 4 + 4 + TRANSPORT_NAME + 1 + 1;

    for info in sk.node.connections_info()? {
        let (Some(laddr), Some(faddr)) = (
            info.key.laddr.to_ipv4_mapped(),
            info.key.faddr.to_ipv4_mapped(),
        ) else {
            continue;
        };
        if info.key.net != sk.net {
            continue;
        }
        table.extend_from_slice(&info.next_tx.to_ne_bytes(), GFP_KERNEL)?;
        table.extend_from_slice(&info.next_rx.to_ne_bytes(), GFP_KERNEL)?;
        table.extend_from_slice(&laddr.octets(), GFP_KERNEL)?;
        table.extend_from_slice(&faddr.octets(), GFP_KERNEL)?;
        table.extend_from_slice(&put_name::<TRANSPORT_NAME>("infiniband"), GFP_KERNEL)?;
        table.push(info.flags, GFP_KERNEL)?;
        table.push(info.key.tos, GFP_KERNEL)?;
    }
    Ok(RECORD)
}
