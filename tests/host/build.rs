// SPDX-License-Identifier: GPL-2.0

//! Generates the input of `uapi/mod.rs` from the system's headers, as `Kbuild` does from the
//! kernel's. The bindgen is that of the module's build, which `make setup` installs.

use std::{env, fs, process::Command};

fn main() {
    let top = format!("{}/../..", env::var("CARGO_MANIFEST_DIR").unwrap());
    let out = format!("{}/uapi.rs", env::var("OUT_DIR").unwrap());
    let [header, parameters] =
        ["uapi.h", "bindgen_parameters"].map(|name| format!("{top}/uapi/{name}"));
    for path in [&header, &parameters] {
        println!("cargo::rerun-if-changed={path}");
    }
    let options = fs::read_to_string(parameters).unwrap();
    let options: Vec<&str> = options
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    // The shell splits the lines, and removes their quotes.
    let script = format!(
        r#". "$1" && exec "$(bindgen_path)" "$2" {} -o "$3""#,
        options.join(" ")
    );
    let lib = format!("{top}/scripts/lib.sh");
    let done = Command::new("bash")
        .args(["-c", &script, "bash", &lib, &header, &out])
        .status()
        .expect("bash runs bindgen");
    assert!(done.success(), "no bindgen that works: run make setup");
    println!("cargo::rustc-env=RDS_UAPI={out}");
}
