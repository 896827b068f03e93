// SPDX-License-Identifier: GPL-2.0
//! One archive with the facts that a report of a defect should have.
//!
//! It has addresses, names of devices and commands, and the module's lines of the kernel log. It
//! has no secrets: no keys of memory (`rdma resource show mr`), arguments of commands, or payload.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rds_socket::RdsSocket;
use serde_json::{Map, Value};

use crate::archive::Archive;
use crate::holders::Holders;
use crate::record::Family;
use crate::show::Layout;
use crate::tables::Kind;

/// The folder in the archive.
const FOLDER: &str = "rds-report";

/// Largest size of a file in an archive.
const LONGEST: usize = 64 << 20;

/// Modules of RDS: this one, and those of C RDS.
const MODULES: [&str; 4] = ["rds_rust", "rds", "rds_rdma", "rds_tcp"];

/// Arguments of the calls of `rdma`. `mr` is left out, as it shows keys with which peers access
/// memory.
const RDMA: [&[&str]; 5] = [
    &["link"],
    &["resource", "show"],
    &["resource", "show", "qp"],
    &["resource", "show", "cm_id"],
    &["resource", "show", "cq"],
];

/// An archive, and the list of its missing parts.
struct Report<W> {
    archive: Archive<W>,
    missing: Vec<String>,
}

impl<W: Write> Report<W> {
    fn new(out: W, time: u64) -> Self {
        Report {
            archive: Archive::new(out, time),
            missing: Vec::new(),
        }
    }

    /// Notes a missing part and the reason, in one line.
    fn miss(&mut self, what: String) {
        self.missing.push(what.replace('\n', ";"));
    }

    /// Adds a file, or the reason why it is missing. Fails if the archive cannot be written.
    fn add(&mut self, name: &str, content: Result<Vec<u8>>) -> Result<()> {
        match content {
            Ok(mut content) => {
                if content.len() > LONGEST {
                    content.truncate(LONGEST);
                    self.miss(format!("{name}: the rest of it"));
                }
                let name = format!("{FOLDER}/{name}");
                let added = self.archive.add(&name, &content);
                added.context("cannot write the archive")
            }
            Err(error) => {
                self.miss(format!("{name}: {error:#}"));
                Ok(())
            }
        }
    }

    /// Adds the files of a folder and of those below it, but not the targets of links.
    fn add_tree(&mut self, name: &str, path: &Path) -> Result<()> {
        let mut files = Vec::new();
        let listed = list(path, &mut files);
        files.sort();
        for file in &files {
            let below = file.strip_prefix(path).unwrap_or(file).display();
            self.add(&format!("{name}/{below}"), read(file))?;
        }
        if let Err(error) = listed {
            self.missing
                .push(format!("{name}: {}: {error}", path.display()));
        }
        Ok(())
    }

    /// Adds the output of a command.
    fn add_command(&mut self, name: &str, program: &str, arguments: &[&str]) -> Result<()> {
        self.add(name, output(program, arguments))
    }

    /// Adds the list of missing parts, and ends the archive. Returns the list.
    fn finish(mut self) -> Result<Vec<String>> {
        let missing = std::mem::take(&mut self.missing);
        let lines: String = missing.iter().map(|x| format!("{x}\n")).collect();
        self.add("missing.txt", Ok(lines.into_bytes()))?;
        self.archive.finish().context("cannot write the archive")?;
        Ok(missing)
    }
}

/// Lists the files below a folder.
fn list(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let command = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(command)?;
    let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    anyhow::ensure!(output.status.success(), "{}: {told}", command());
    Ok(output.stdout)
}

/// Returns the lines of the kernel log that are about RDS.
fn log_of_rds(log: &[u8]) -> Vec<u8> {
    let lines = log.split_inclusive(|&byte| byte == b'\n');
    let about = |line: &&[u8]| line.windows(3).any(|x| x.eq_ignore_ascii_case(b"rds"));
    lines.filter(about).collect::<Vec<_>>().concat()
}

/// Returns all tables, as text and as JSON.
fn tables() -> Result<(String, Value)> {
    let socket = RdsSocket::new()?;
    let (mut text, mut object) = (String::new(), Map::new());
    for kind in Kind::ALL {
        let shown = kind.read(&socket, Family::V6).and_then(|found| {
            let Some((table, family)) = found else {
                return Ok((String::new(), Value::Null));
            };
            let layout = Layout {
                family,
                verbose: true,
                ..Layout::default()
            };
            Ok((kind.text(&table, layout)?, kind.json(&table, family)?))
        });
        let (lines, value) =
            shown.unwrap_or_else(|e| (format!("\n{}: {e:#}\n", kind.description()), Value::Null));
        text.push_str(&lines);
        object.insert(kind.key().to_owned(), value);
    }
    Ok((text, Value::Object(object)))
}

/// Paths of `/proc` and `/sys`.
pub(crate) struct Places<'a> {
    pub(crate) proc: &'a Path,
    pub(crate) sys: &'a Path,
}

/// Writes the archive. `first` is the content of its first file; `holders` are those of sockets.
/// Returns the list of missing parts.
pub(crate) fn write(
    out: impl Write,
    time: u64,
    first: &str,
    places: &Places<'_>,
    holders: Result<Holders>,
) -> Result<Vec<String>> {
    let mut report = Report::new(out, time);
    report.add("version.txt", Ok(first.into()))?;
    report.add("kernel.txt", read(&places.proc.join("version")))?;
    report.add("os-release.txt", read(Path::new("/etc/os-release")))?;
    match tables() {
        Ok((text, json)) => {
            report.add("tables.txt", Ok(text.into_bytes()))?;
            report.add("tables.json", Ok(format!("{json:#}\n").into_bytes()))?;
        }
        Err(error) => report.miss(format!("tables: {error:#}")),
    }
    if let Ok(Holders { denied: 1.., .. }) = &holders {
        let what = "holders.txt: processes of others; run as root";
        report.miss(what.to_owned());
    }
    let holders = holders.and_then(|x| Ok(x.text()?.into_bytes()));
    report.add("holders.txt", holders)?;
    let there = |name: &&str| places.sys.join("module").join(name).is_dir();
    let modules: Vec<&str> = MODULES.into_iter().filter(there).collect();
    if modules.is_empty() {
        report
            .missing
            .push("module: none of RDS is loaded".to_owned());
    }
    for module in modules {
        let path = places.sys.join("module").join(module);
        for name in ["version", "srcversion", "refcnt", "initstate", "taint"] {
            report.add(&format!("module/{module}/{name}"), read(&path.join(name)))?;
        }
        for folder in ["parameters", "notes"] {
            let path = path.join(folder);
            if path.is_dir() {
                report.add_tree(&format!("module/{module}/{folder}"), &path)?;
            }
        }
        report.add_command(
            &format!("module/{module}/modinfo.txt"),
            "modinfo",
            &[module],
        )?;
    }
    report.add_tree("sysctl", &places.proc.join("sys/net/rds"))?;
    report.add_tree("debugfs", &places.sys.join("kernel/debug/rds"))?;
    for arguments in RDMA {
        let name = format!("rdma/{}.txt", arguments.join("-"));
        report.add_command(&name, "rdma", arguments)?;
    }
    let log = output("dmesg", &[]).map(|log| log_of_rds(&log));
    report.add("kernel-log.txt", log)?;
    report.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// Returns the names and contents of the files in an archive.
    fn unpack(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let (mut files, mut rest) = (Vec::new(), archive);
        while rest[0] != 0 {
            let name = rest[..100].split(|&byte| byte == 0).next().unwrap();
            let len = std::str::from_utf8(&rest[124..135]).unwrap();
            let len = usize::from_str_radix(len, 8).unwrap();
            let name = String::from_utf8(name.to_vec()).unwrap();
            files.push((name, rest[512..512 + len].to_vec()));
            rest = &rest[512 + len.next_multiple_of(512)..];
        }
        files
    }

    #[test]
    fn existing_files_are_archived_and_missing_ones_named() {
        let here = Scratch::new("report");
        here.write("proc/version", "Linux version 7.2\n");
        here.write("proc/sys/net/rds/ping_enable", "1\n");
        here.write("proc/sys/net/rds/ib/flow_control", "0\n");
        here.write("sys/module/rds_rust/version", "4.0\n");
        here.write("sys/module/rds_rust/parameters/max_frag", "8192\n");
        here.write("sys/module/rds_rust/sections/.text", "0xffffffffc0000000\n");
        here.link("sys/module/rds_rust/parameters/away", "/etc/passwd");
        let (proc, sys) = (here.path().join("proc"), here.path().join("sys"));
        let places = Places {
            proc: &proc,
            sys: &sys,
        };
        let mut bytes = Vec::new();
        let holders = Holders {
            denied: 3,
            ..Holders::default()
        };
        let missing = write(&mut bytes, 0, "rds-info 1\n", &places, Ok(holders)).unwrap();
        let files = unpack(&bytes);
        let find = |name: &str| {
            let name = format!("rds-report/{name}");
            files.iter().find(|(x, _)| *x == name).map(|(_, y)| &y[..])
        };
        assert_eq!(
            files[0],
            (
                "rds-report/version.txt".to_owned(),
                b"rds-info 1\n".to_vec()
            )
        );
        assert_eq!(find("kernel.txt"), Some(&b"Linux version 7.2\n"[..]));
        assert_eq!(find("sysctl/ping_enable"), Some(&b"1\n"[..]));
        assert_eq!(find("sysctl/ib/flow_control"), Some(&b"0\n"[..]));
        assert_eq!(
            find("module/rds_rust/parameters/max_frag"),
            Some(&b"8192\n"[..])
        );
        // Addresses of the kernel are secret, and targets of links are left out.
        assert_eq!(find("module/rds_rust/sections/.text"), None);
        assert_eq!(find("module/rds_rust/parameters/away"), None);
        for name in [
            "debugfs: ",
            "module/rds_rust/refcnt: ",
            "holders.txt: processes of others",
        ] {
            assert!(
                missing.iter().any(|x| x.starts_with(name)),
                "{name}: {missing:?}"
            );
        }
        let (last, told) = files.last().unwrap();
        assert_eq!(last, "rds-report/missing.txt");
        assert_eq!(
            told,
            &missing
                .iter()
                .map(|x| format!("{x}\n"))
                .collect::<String>()
                .into_bytes()
        );
    }

    #[test]
    fn no_key_is_asked_for() {
        assert!(RDMA
            .iter()
            .all(|arguments| !arguments.contains(&"mr") && !arguments.contains(&"pd")));
    }

    #[test]
    fn log_lines_of_other_modules_are_left_out() {
        let log = b"[1] rds_rust: one\n[2] password: two\n[3] RDS/IB: three\n[4] r d s";
        assert_eq!(log_of_rds(log), b"[1] rds_rust: one\n[3] RDS/IB: three\n");
    }

    #[test]
    fn an_archive_that_cannot_be_written_is_an_error() {
        let here = Scratch::new("full");
        let places = Places {
            proc: here.path(),
            sys: here.path(),
        };
        let full = fs::File::create("/dev/full").unwrap();
        assert!(write(full, 0, "", &places, Ok(Holders::default())).is_err());
    }
}
