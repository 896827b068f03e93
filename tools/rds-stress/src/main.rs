// SPDX-License-Identifier: GPL-2.0
//! `rds-stress`: verified RDS messages between two nodes, with their rates.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    rds_stress::main()
}
