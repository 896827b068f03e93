// SPDX-License-Identifier: GPL-2.0

//! AF_RDS system calls: the layer between programs and messages, bindings and connections.
//!
//! The interface and its error numbers are those of C RDS (`include/uapi/linux/rds.h`).
//! `Documentation/abi.md` lists the intended differences.

#![deny(unsafe_code)]

mod bind;
mod control;
mod info;
mod op_waits;
mod operation;
mod ops;
mod opts;
mod rdma;
mod recvmsg;
mod sendmsg;
