// SPDX-License-Identifier: GPL-2.0
//! `rds-ping`: measures the round trip to an RDS node.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    rds_ping::main()
}
