// SPDX-License-Identifier: GPL-2.0
//! `rds-stress`: verified RDS messages between two nodes, and how fast they are.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    rds_stress::main()
}
