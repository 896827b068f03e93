// SPDX-License-Identifier: GPL-2.0
//! `rds-info`: shows the kernel's tables of RDS.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    rds_info::main()
}
