// SPDX-License-Identifier: GPL-2.0

//! RDS over reliable connected queue pairs: InfiniBand, RoCE and iWARP.
//!
//! # Operation
//!
//! A connection has one endpoint: a CM id, a queue pair and the buffers that are posted to it. A
//! message goes out as fragments of 4 KiB, each behind a header of its own, each one work request with
//! one scatter/gather entry: header and payload lie next to each other in a buffer of the device's pool,
//! which is mapped for as long as the pool has it. They arrive in such buffers too, and a reader copies
//! from there.
//!
//! # Ownership
//!
//! The connection's worker owns the endpoint; dropping it there takes everything down in order. What is
//! posted belongs to the queue pair until it completes. A message belongs to its connection until the
//! peer has acknowledged it.
//!
//! # Context
//!
//! Completions run in softirq and take the connection's queue lock; the CM calls its handlers in process
//! context, where they note what happened and wake the worker.

#![deny(unsafe_code)]

mod cq_watchdog;
mod deferred;
mod device;
mod endpoint;
mod endpoint_list;
#[cfg(rds_kunit)]
#[path = "../tests/kunit/ib_transport/mod.rs"]
mod kunit;
mod mr_entry;
pub(crate) mod mr_free_list;
mod mr_pool;
mod private;
mod qp_context;
mod read_quiesce;
mod reg_qp;
mod transmit;
mod tunables;

pub(crate) use device::Ib;
pub(crate) use endpoint::IncomingConnection;
pub(crate) use tunables::IbTunables;
