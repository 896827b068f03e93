// SPDX-License-Identifier: GPL-2.0

//! AF_RDS as programs see it: system calls on one side, messages and bindings on the other.
//!
//! The interface and its error numbers are those of C RDS (`include/uapi/linux/rds.h`); where ours
//! differ on purpose, `Documentation/abi.md` says so.

#![deny(unsafe_code)]

mod bind;
mod info;
mod operation;
mod ops;
mod opts;
mod rdma;
mod recvmsg;
mod sendmsg;

use kernel::prelude::*;

/// The level of the options and control messages of RDS.
const SOL_RDS: c_int = 276;
