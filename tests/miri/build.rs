// SPDX-License-Identifier: GPL-2.0

//! As Kbuild does for a module with the KUnit suites.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(rds_kunit)");
    println!("cargo::rustc-cfg=rds_kunit");
}
