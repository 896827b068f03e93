// SPDX-License-Identifier: GPL-2.0
//! The cost of messages between two sockets.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{bail, Context, Result};
use rds_socket::{poll, Events, PollFd, RdsSocket};
use rustix::io::Errno;
use rustix::net::{
    connect, recv, send, socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
};

use crate::measure::{repeat, Effort, Samples};

/// Room for all messages in flight, at either end.
const BUFFER: usize = 1 << 20;

/// The message that creates a connection.
const FIRST: &[u8; 5] = b"first";

/// Two non-blocking sockets that are each other's peers.
pub(crate) trait Pair {
    type Socket: AsFd;

    fn ends(&self) -> &[Self::Socket; 2];

    /// Sends a message from an end: all of it, or nothing.
    fn send(&self, from: usize, payload: &[u8]) -> rustix::io::Result<()> {
        send(&self.ends()[from], payload, SendFlags::empty()).map(drop)
    }

    /// Receives a message at an end. Returns its length.
    fn receive(&self, at: usize, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        recv(&self.ends()[at], buffer, RecvFlags::empty()).map(|(len, _)| len)
    }
}

/// Two RDS sockets of this process.
pub(crate) struct RdsPair([RdsSocket; 2]);

impl RdsPair {
    pub(crate) fn new(first: SocketAddr, second: SocketAddr) -> Result<Self> {
        Self::with_tos([first, second], 0)
    }

    /// Creates a pair with a type of service, that is, on a connection of its own.
    pub(crate) fn with_tos([first, second]: [SocketAddr; 2], tos: u8) -> Result<Self> {
        let sockets = [RdsSocket::bound(first)?, RdsSocket::bound(second)?];
        if tos != 0 {
            sockets.iter().try_for_each(|socket| socket.set_tos(tos))?;
        }
        Self::of_sockets(sockets, BUFFER)
    }

    /// Makes two bound sockets each other's peers, with buffers of `room` bytes.
    pub(crate) fn of_sockets(sockets: [RdsSocket; 2], room: usize) -> Result<Self> {
        connect(&sockets[0], &sockets[1].local_addr()?)?;
        connect(&sockets[1], &sockets[0].local_addr()?)?;
        for socket in &sockets {
            socket.set_send_limit(room)?;
            socket.set_receive_limit(room)?;
        }
        Ok(RdsPair(sockets))
    }

    /// Sends a message from end 0 to end 1, which creates the connection if there is none.
    pub(crate) fn connect(&self) -> Result<()> {
        self.ask()?;
        self.take_first()
    }

    /// Sends the message of [`Self::connect`], and does not wait for it.
    pub(crate) fn ask(&self) -> Result<()> {
        send_all(self, 0, FIRST)
    }

    /// Waits for the message of [`Self::ask`].
    pub(crate) fn take_first(&self) -> Result<()> {
        receive(self, 1, FIRST.len(), &mut [0; FIRST.len()])
    }
}

impl Pair for RdsPair {
    type Socket = RdsSocket;

    fn ends(&self) -> &[RdsSocket; 2] {
        &self.0
    }
}

/// Two sockets of AF_UNIX.
pub(crate) struct UnixPair([OwnedFd; 2]);

impl UnixPair {
    pub(crate) fn new() -> Result<Self> {
        let (first, second) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        Ok(UnixPair([first, second]))
    }
}

impl Pair for UnixPair {
    type Socket = OwnedFd;

    fn ends(&self) -> &[OwnedFd; 2] {
        &self.0
    }
}

/// Sends a message of `size` bytes there and one back; each end waits with `poll()`.
pub(crate) fn round_trips(pair: &impl Pair, size: usize, effort: Effort) -> Result<Samples> {
    round_trips_on(std::slice::from_ref(pair), size, effort)
}

/// Does the same on one pair after the other, over and over.
pub(crate) fn round_trips_on(pairs: &[impl Pair], size: usize, effort: Effort) -> Result<Samples> {
    let payload = vec![0x55; size];
    let mut buffer = vec![0; size];
    let mut turns = pairs.iter().cycle();
    repeat(effort, 1, || {
        let pair = turns.next().context("there are no pairs")?;
        transfer(pair, 0, &payload, &mut buffer)?;
        transfer(pair, 1, &payload, &mut buffer)
    })
}

/// Sends messages of `size` bytes one way, `flight` at a time: all are sent, then all are received.
pub(crate) fn one_way(
    pair: &impl Pair,
    size: usize,
    flight: usize,
    effort: Effort,
) -> Result<Samples> {
    let payload = vec![0x55; size];
    let mut buffer = vec![0; size];
    repeat(effort, flight, || {
        burst(pair, &payload, flight, &mut buffer)
    })
}

/// Sends `count` messages, then receives them.
pub(crate) fn burst(
    pair: &impl Pair,
    payload: &[u8],
    count: usize,
    buffer: &mut [u8],
) -> Result<()> {
    for _ in 0..count {
        send_all(pair, 0, payload)?;
    }
    for _ in 0..count {
        if !receive_now(pair, 1, payload.len(), buffer)? {
            receive(pair, 1, payload.len(), buffer)?;
        }
    }
    Ok(())
}

fn transfer(pair: &impl Pair, from: usize, payload: &[u8], buffer: &mut [u8]) -> Result<()> {
    send_all(pair, from, payload)?;
    receive(pair, 1 - from, payload.len(), buffer)
}

/// Sends a message; waits while the kernel has no room for it.
fn send_all(pair: &impl Pair, from: usize, payload: &[u8]) -> Result<()> {
    loop {
        match pair.send(from, payload) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN) => wait(&pair.ends()[from], PollFd::WRITABLE)?,
            Err(e) => return Err(e).context("cannot send"),
        }
    }
}

/// Receives a message, which must have `size` bytes; returns false if there is none.
fn receive_now(pair: &impl Pair, at: usize, size: usize, buffer: &mut [u8]) -> Result<bool> {
    match pair.receive(at, buffer) {
        Ok(len) if len == size => Ok(true),
        Ok(len) => bail!("received {len} bytes of {size}"),
        Err(Errno::AGAIN) => Ok(false),
        Err(e) => Err(e).context("cannot receive"),
    }
}

/// Waits for a message, then receives it.
pub(crate) fn receive(pair: &impl Pair, at: usize, size: usize, buffer: &mut [u8]) -> Result<()> {
    loop {
        wait(&pair.ends()[at], PollFd::READABLE)?;
        // RDS also reports a socket as readable when the congestion map of a peer changed.
        if receive_now(pair, at, size, buffer)? {
            return Ok(());
        }
    }
}

/// Waits without a time limit, which would cost instructions. `scripts/bench.py` has one.
fn wait(socket: &impl AsFd, events: Events) -> Result<()> {
    poll(&mut [PollFd::new(socket, events)], None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort {
        warm_up: 1,
        samples: 3,
    };

    #[test]
    fn round_trips_of_unix_sockets() {
        let samples = round_trips(&UnixPair::new().unwrap(), 64, EFFORT).unwrap();
        assert_eq!(samples.values.len(), 3);
        assert!(samples.values.iter().all(|&x| x > 0.0));
    }

    #[test]
    fn round_trips_take_turns() {
        let pairs = [UnixPair::new().unwrap(), UnixPair::new().unwrap()];
        let samples = round_trips_on(&pairs, 64, EFFORT).unwrap();
        assert_eq!(samples.values.len(), 3);
        let none: [UnixPair; 0] = [];
        assert!(round_trips_on(&none, 64, EFFORT).is_err());
    }

    #[test]
    fn one_way_leaves_nothing_behind() {
        let pair = UnixPair::new().unwrap();
        let samples = one_way(&pair, 1000, 8, EFFORT).unwrap();
        assert_eq!(samples.marked, 24);
        let nothing = recv(&pair.0[1], &mut [0; 1000], RecvFlags::empty());
        assert_eq!(nothing.unwrap_err(), Errno::AGAIN);
    }

    #[test]
    fn a_message_of_another_size_is_an_error() {
        let pair = UnixPair::new().unwrap();
        send_all(&pair, 0, b"short").unwrap();
        let error = receive(&pair, 1, 6, &mut [0; 16]).unwrap_err();
        assert!(error.to_string().contains("5 bytes of 6"), "{error}");
    }
}
