// SPDX-License-Identifier: GPL-2.0
//! Pairs of sockets in two network namespaces: RDS over TCP, and plain TCP as its lower limit.
//!
//! RDS serves a local destination without a transport, so the other end is in another namespace.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use rds_socket::{poll, PollFd, RdsSocket, Transport};
use rustix::io::{readv, writev, Errno};
use rustix::net::sockopt::{
    set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force, set_tcp_nodelay,
};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

use crate::traffic::{Pair, RdsPair};

/// Room for messages of 1 MiB in flight, at either end.
const BUFFER: usize = 4 << 20;

/// Bytes of the header that RDS sends with each message.
const HEADER: usize = 48;

/// The network namespace of this process and another one.
pub(crate) struct Namespaces {
    own: File,
    other: File,
}

impl Namespaces {
    /// Opens the namespaces. `other` is a file like `/run/netns/NAME`.
    pub(crate) fn open(other: &Path) -> Result<Self> {
        let open = |path: &Path| File::open(path).with_context(|| format!("cannot open {path:?}"));
        Ok(Namespaces {
            own: open(Path::new("/proc/thread-self/ns/net"))?,
            other: open(other)?,
        })
    }

    /// Runs a function with the thread in the other namespace. Sockets stay where they are made.
    fn in_other<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let enter = |space: &File| {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
                .context("cannot enter a network namespace")
        };
        enter(&self.other)?;
        let made = make();
        enter(&self.own)?;
        made
    }
}

/// Returns RDS sockets at the two addresses, which use TCP. The second one is in the other
/// namespace.
pub(crate) fn rds_pair(spaces: &Namespaces, ends: [Ipv4Addr; 2]) -> Result<RdsPair> {
    let bound = |addr: Ipv4Addr| {
        let socket = RdsSocket::new()?;
        socket.set_transport(Transport::Tcp)?;
        socket.bind((addr, 0).into())?;
        Ok(socket)
    };
    let [first, second] = ends;
    RdsPair::of_sockets([bound(first)?, spaces.in_other(|| bound(second))?], BUFFER)
}

/// The two ends of a TCP connection. Each message has a header of the length of that of RDS.
pub(crate) struct StreamPair([TcpStream; 2]);

impl StreamPair {
    /// Connects from the first address to the second one, in the other namespace.
    pub(crate) fn new(spaces: &Namespaces, [first, second]: [Ipv4Addr; 2]) -> Result<Self> {
        let listener = spaces.in_other(|| Ok(TcpListener::bind((second, 0))?))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, peer) = listener.accept()?;
        ensure!(
            peer.ip() == IpAddr::V4(first),
            "the route goes from {}",
            peer.ip()
        );
        let ends = [near, far];
        for end in &ends {
            end.set_nonblocking(true)?;
            set_tcp_nodelay(end, true)?;
            set_socket_send_buffer_size_force(end, BUFFER)?;
            set_socket_recv_buffer_size_force(end, BUFFER)?;
        }
        Ok(StreamPair(ends))
    }
}

impl Pair for StreamPair {
    type Socket = TcpStream;

    fn ends(&self) -> &[TcpStream; 2] {
        &self.0
    }

    /// The send buffer has room for each message of a row, so one call takes all of it.
    fn send(&self, from: usize, payload: &[u8]) -> rustix::io::Result<()> {
        let header = [0x48; HEADER];
        let parts = [IoSlice::new(&header), IoSlice::new(payload)];
        match writev(&self.0[from], &parts)? {
            len if len == HEADER + payload.len() => Ok(()),
            _ => Err(Errno::NOBUFS),
        }
    }

    fn receive(&self, at: usize, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        let end = &self.0[at];
        let mut header = [0; HEADER];
        let mut done = 0;
        while done < HEADER + buffer.len() {
            let (head, tail) = (done.min(HEADER), done.saturating_sub(HEADER));
            let mut parts = [
                IoSliceMut::new(&mut header[head..]),
                IoSliceMut::new(&mut buffer[tail..]),
            ];
            match readv(end, &mut parts) {
                Ok(0) => return Err(Errno::CONNRESET),
                Ok(len) => done += len,
                Err(Errno::AGAIN) if done > 0 => {
                    poll(&mut [PollFd::new(end, PollFd::READABLE)], None).map_err(|_| Errno::IO)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Effort;
    use crate::traffic::{one_way, round_trips};

    fn pair() -> StreamPair {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ends = [near, listener.accept().unwrap().0];
        ends.iter()
            .for_each(|end| end.set_nonblocking(true).unwrap());
        StreamPair(ends)
    }

    const EFFORT: Effort = Effort {
        warm_up: 1,
        samples: 3,
    };

    #[test]
    fn messages_of_a_stream_have_a_length() {
        let pair = pair();
        assert_eq!(round_trips(&pair, 64, EFFORT).unwrap().values.len(), 3);
        assert_eq!(one_way(&pair, 8192, 4, EFFORT).unwrap().marked, 12);
        assert_eq!(pair.receive(1, &mut [0; 64]), Err(Errno::AGAIN));
    }
}
