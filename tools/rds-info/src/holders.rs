// SPDX-License-Identifier: GPL-2.0
//! The processes with open RDS sockets, which keep the module from being unloaded.
//!
//! The kernel's tables have only the bound sockets, of one network namespace. So all sockets of all
//! processes are checked for their protocol, which an extended attribute of `/proc/PID/fd/N`
//! contains.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::record::Socket;

/// An open RDS socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    /// The first 15 bytes of its name, as `ps` shows them. Arguments may be secret, and are not
    /// read.
    pub(crate) command: String,
    pub(crate) fd: u32,
    pub(crate) inode: u64,
    /// The bound address. `None`: not bound, or in another network namespace.
    pub(crate) bound: Option<IpAddr>,
    pub(crate) bound_port: Option<u16>,
}

/// All RDS sockets that were found.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) found: Vec<Holder>,
    /// Number of other users' processes that could not be examined.
    pub(crate) denied: usize,
}

/// Returns `true` if `path` is a link to an RDS socket.
pub(crate) fn is_rds(path: &Path) -> bool {
    let mut name = [0; 64];
    let len = rustix::fs::getxattr(path, "system.sockprotoname", &mut name[..]).unwrap_or(0);
    name[..len].split(|&byte| byte == 0).next() == Some(b"RDS")
}

impl Holders {
    /// Finds the sockets of all processes except `except`, ordered by process number. `is_rds`
    /// selects the sockets.
    pub(crate) fn find(
        proc: &Path,
        except: u32,
        is_rds: impl Fn(&Path) -> bool,
    ) -> Result<Holders> {
        let mut holders = Holders::default();
        for entry in fs::read_dir(proc).context("cannot read /proc")? {
            let entry = entry.context("cannot read /proc")?;
            let Some(pid) = entry.file_name().to_str().and_then(|x| x.parse().ok()) else {
                continue;
            };
            if pid == except {
                continue;
            }
            let Ok(open) = fs::read_dir(entry.path().join("fd")).inspect_err(|e| {
                holders.denied += usize::from(e.kind() == ErrorKind::PermissionDenied)
            }) else {
                continue;
            };
            let command = || {
                let name = fs::read(entry.path().join("comm")).unwrap_or_default();
                String::from_utf8_lossy(&name).trim_end().to_owned()
            };
            for link in open.flatten() {
                let Some(inode) = socket_inode(&link.path()).filter(|_| is_rds(&link.path()))
                else {
                    continue;
                };
                let Some(fd) = link.file_name().to_str().and_then(|x| x.parse().ok()) else {
                    continue;
                };
                holders.found.push(Holder {
                    pid,
                    command: command(),
                    fd,
                    inode,
                    bound: None,
                    bound_port: None,
                });
            }
        }
        holders.found.sort_by_key(|holder| (holder.pid, holder.fd));
        Ok(holders)
    }

    /// Adds the addresses from the kernel's table.
    pub(crate) fn add_addresses(&mut self, sockets: &[Socket]) {
        let by_inode: BTreeMap<u64, &Socket> = sockets.iter().map(|x| (x.inode, x)).collect();
        for holder in &mut self.found {
            if let Some(socket) = by_inode.get(&holder.inode) {
                holder.bound = Some(socket.bound);
                holder.bound_port = Some(socket.bound_port);
            }
        }
    }

    /// Returns a table with the layout of the kernel's tables.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut out = String::from("\nRDS Socket Holders:\n");
        let (pid, command, address) = ("Pid", "Comm", "BoundAddr");
        writeln!(
            out,
            "{pid:>8} {command:>16} {:>6} {:>8} {address:>37} {:>5}",
            "Fd", "Inode", "BPort"
        )?;
        for holder in &self.found {
            let address = holder.bound.map_or("-".to_owned(), |x| x.to_string());
            let port = holder.bound_port.map_or("-".to_owned(), |x| x.to_string());
            let Holder {
                pid,
                command,
                fd,
                inode,
                ..
            } = holder;
            writeln!(
                out,
                "{pid:>8} {command:>16} {fd:>6} {inode:>8} {address:>37} {port:>5}"
            )?;
        }
        Ok(out)
    }
}

/// Returns the inode of a link such as `socket:[123]`; `None` if it is not a socket.
fn socket_inode(link: &Path) -> Option<u64> {
    let target = fs::read_link(link).ok()?;
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn each_socket_of_each_process_is_found() {
        let proc = Scratch::new("holders");
        for (pid, name, links) in [
            (300, "late\n", &["socket:[7]"][..]),
            (
                20,
                "two words\n",
                &["/dev/null", "socket:[5]", "socket:[8]", "pipe:[5]"],
            ),
            (4, "this program\n", &["socket:[9]"]),
            (
                5,
                "none\n",
                &["anon_inode:[eventpoll]", "socket:[x]", "socket:[6]"],
            ),
        ] {
            proc.write(&format!("{pid}/comm"), name);
            for (fd, target) in links.iter().enumerate() {
                proc.link(&format!("{pid}/fd/{fd}"), target);
            }
        }
        proc.write("uptime", "");
        // A process that has just ended.
        proc.write("77/comm", "gone\n");
        // The sixth socket is of another protocol.
        let is_rds = |path: &Path| socket_inode(path) != Some(6);
        let mut holders = Holders::find(proc.path(), 4, is_rds).unwrap();
        let found: Vec<_> = holders
            .found
            .iter()
            .map(|x| (x.pid, x.command.as_str(), x.fd, x.inode))
            .collect();
        let two = "two words";
        assert_eq!(
            found,
            [(20, two, 1, 5), (20, two, 2, 8), (300, "late", 0, 7)]
        );
        assert_eq!(holders.denied, 0);

        holders.add_addresses(&[Socket {
            bound: [10, 0, 0, 1].into(),
            bound_port: 4001,
            connected: [0, 0, 0, 0].into(),
            connected_port: 0,
            sndbuf: 0,
            rcvbuf: 0,
            inode: 8,
        }]);
        let text = holders.text().unwrap();
        let rows: Vec<Vec<_>> = text
            .lines()
            .map(|x| x.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[2],
            ["Pid", "Comm", "Fd", "Inode", "BoundAddr", "BPort"]
        );
        assert_eq!(rows[3], ["20", "two", "words", "1", "5", "-", "-"]);
        assert_eq!(
            rows[4],
            ["20", "two", "words", "2", "8", "10.0.0.1", "4001"]
        );
        assert_eq!(rows.len(), 6);
    }

    #[test]
    fn other_sockets_are_not_of_rds() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let path = format!("/proc/self/fd/{number}");
        assert!(socket_inode(Path::new(&path)).is_some());
        assert!(!is_rds(Path::new(&path)));
        assert!(!is_rds(Path::new("/proc/self/fd/none")));
    }

    #[test]
    fn where_there_are_no_processes_nothing_is_found() {
        let proc = Scratch::new("no-processes");
        let holders = Holders::find(proc.path(), 1, |_| true).unwrap();
        assert!(holders.found.is_empty());
        assert_eq!(holders.text().unwrap().lines().count(), 3);
        assert!(Holders::find(&proc.path().join("none"), 1, |_| true).is_err());
    }
}
