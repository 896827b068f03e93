// SPDX-License-Identifier: GPL-2.0
//! The network namespaces of all processes, as Oracle's rds-info finds them: in `/proc`.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

/// A network namespace. It exists at least as long as this object.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// The number that identifies it for users.
    pub(crate) inode: u64,
    /// True for the namespace in which this program was started.
    pub(crate) home: bool,
    file: File,
}

impl Namespace {
    /// Moves the calling thread into the namespace: it opens its later sockets there.
    pub(crate) fn enter(&self) -> Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        let entered = move_into_link_name_space(self.file.as_fd(), kind);
        explain(entered.map_err(io::Error::from), || {
            format!("cannot enter the network namespace {}", self.inode)
        })
    }

    /// Returns the lines above the tables of the namespace.
    pub(crate) fn title(&self) -> String {
        let home = if self.home { " (home namespace)" } else { "" };
        let (line, inode) = ("#".repeat(50), self.inode);
        format!("\n{line}\n#\n# Network namespace {inode}{home}\n#\n")
    }
}

/// Returns all namespaces, that of this program first.
pub(crate) fn all(proc: &Path) -> Result<Vec<Namespace>> {
    let own = fs::metadata(proc.join("self/ns/net"));
    let home = explain(own, || "cannot find out this network namespace".to_owned())?.ino();
    let mut found: Vec<Namespace> = Vec::new();
    for entry in fs::read_dir(proc).context("cannot read /proc")? {
        let name = entry.context("cannot read /proc")?.file_name();
        let process = name.to_string_lossy();
        if !process.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let path = proc.join(&name).join("ns/net");
        let look = || -> io::Result<(u64, File)> {
            let file = File::open(&path)?;
            Ok((file.metadata()?.ino(), file))
        };
        let (inode, file) = match look() {
            Err(e) if is_gone(&e) => continue,
            result => explain(result, || format!("cannot open {}", path.display()))?,
        };
        if found.iter().all(|namespace| namespace.inode != inode) {
            let home = inode == home;
            found.push(Namespace { inode, home, file });
        }
    }
    found.sort_by_key(|namespace| (!namespace.home, namespace.inode));
    Ok(found)
}

/// Returns `true` if the error means that the process has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

fn explain<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    let denied = |e: &io::Error| e.kind() == ErrorKind::PermissionDenied;
    let hint = match &result {
        Err(e) if denied(e) => {
            ": namespaces of others are for root (CAP_SYS_PTRACE, CAP_SYS_ADMIN)"
        }
        _ => "",
    };
    result.with_context(|| format!("{}{hint}", what()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A folder like `/proc`, which is removed when this is dropped.
    struct Proc(PathBuf);

    impl Proc {
        fn new(name: &str) -> Self {
            let name = format!("rds-info-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Proc(path)
        }

        /// Adds a process in the namespace of another, or in a new one.
        fn process(&self, name: &str, like: Option<&str>) -> u64 {
            let folder = self.0.join(name).join("ns");
            fs::create_dir_all(&folder).unwrap();
            let path = folder.join("net");
            match like {
                Some(other) => fs::hard_link(self.0.join(other).join("ns/net"), &path).unwrap(),
                None => fs::write(&path, "").unwrap(),
            }
            fs::metadata(path).unwrap().ino()
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn each_is_found_once_and_that_of_the_program_first() {
        let proc = Proc::new("each");
        let one = proc.process("7", None);
        let home = proc.process("12", None);
        let two = proc.process("300", None);
        for (name, like) in [("13", "12"), ("self", "12"), ("8", "7"), ("acpi", "7")] {
            proc.process(name, Some(like));
        }
        proc.process("irq", None);
        // A process that has just ended.
        fs::create_dir(proc.0.join("99")).unwrap();
        let found = all(&proc.0).unwrap();
        let inodes: Vec<_> = found.iter().map(|x| (x.home, x.inode)).collect();
        let (first, last) = (one.min(two), one.max(two));
        assert_eq!(inodes, [(true, home), (false, first), (false, last)]);
        let line = "#".repeat(50);
        let title = format!("\n{line}\n#\n# Network namespace {home} (home namespace)\n#\n");
        assert_eq!(found[0].title(), title);
        assert!(!found[1].title().contains("home"));
    }

    #[test]
    fn other_files_cannot_be_entered() {
        let proc = Proc::new("none");
        proc.process("self", None);
        proc.process("5", Some("self"));
        let found = all(&proc.0).unwrap();
        let error = found[0].enter().unwrap_err().to_string();
        assert!(error.contains(&found[0].inode.to_string()), "{error}");
        assert!(all(&proc.0.join("nowhere")).is_err());
    }

    #[test]
    fn a_denied_call_names_the_capability() {
        let denied = io::Error::from(ErrorKind::PermissionDenied);
        let error = explain::<()>(Err(denied), || "no".to_owned()).unwrap_err();
        assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    }
}
