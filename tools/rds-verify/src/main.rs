// SPDX-License-Identifier: GPL-2.0
//! `rds-verify`: RDS traffic with verification of every byte and of the order.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    rds_verify::main()
}
