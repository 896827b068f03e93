// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Pings a node: `ping LOCAL PEER`.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rds_socket::{is_congested, poll, PollFd, RdsSocket, Received, PING_PORT};

/// Sends a message, and waits as long as necessary.
fn send(socket: &RdsSocket, to: SocketAddr) -> std::io::Result<()> {
    while let Err(error) = socket.send_to(b"", to) {
        let room = match error.kind() {
            _ if is_congested(&error) => PollFd::UNCONGESTED,
            ErrorKind::WouldBlock => PollFd::WRITABLE,
            _ => return Err(error),
        };
        poll(&mut [PollFd::new(socket, room)], None)?;
    }
    Ok(())
}

/// Receives the next message. `READABLE` may also mean a change of congestion, with nothing to
/// receive.
fn receive(socket: &RdsSocket) -> Result<Received, Box<dyn Error>> {
    loop {
        match socket.recv_from(&mut []) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return Ok(other?),
        }
        let mut fds = [PollFd::new(socket, PollFd::READABLE)];
        if poll(&mut fds, Some(Duration::from_secs(60)))? == 0 {
            return Err("no answer".into());
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let addresses: Vec<IpAddr> = std::env::args()
        .skip(1)
        .map(|arg| arg.parse())
        .collect::<Result<_, _>>()?;
    let [local, peer] = addresses[..] else {
        return Err("usage: ping LOCAL PEER".into());
    };
    let socket = RdsSocket::bound(SocketAddr::new(local, 0))?;
    for number in 1..=3 {
        let start = Instant::now();
        send(&socket, SocketAddr::new(peer, PING_PORT))?;
        let from = receive(&socket)?.from.ok_or("that was no message")?;
        println!("{number}: {from} after {:?}", start.elapsed());
    }
    Ok(())
}
