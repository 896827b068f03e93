// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! RDMA: `memory serve LOCAL:PORT` writes to memory that `memory ask LOCAL:0 SERVER:PORT` registers.

use std::error::Error;
use std::io::ErrorKind;
use std::net::SocketAddr;

use rds_socket::{
    poll, Control, Direction, Lifetime, Memory, Notices, PollFd, RdsSocket, Received, Status,
};

const TEXT: &[u8] = b"written by the peer";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The next message, or what there is to know of operations that have ended.
fn receive(socket: &RdsSocket, buf: &mut [u8]) -> Result<(Received, Notices)> {
    loop {
        poll(&mut [PollFd::new(socket, PollFd::READABLE)], None)?;
        match socket.recv_with(buf) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return Ok(other?),
        }
    }
}

fn serve(socket: &RdsSocket) -> Result<()> {
    let (request, notices) = receive(socket, &mut [0; 64])?;
    let client = request.from.ok_or("no message")?;
    let region = notices.region.ok_or("a request without a region")?;
    let memory = Memory::new(TEXT.len())?;
    memory.all().write(TEXT);
    let write = Control::Transfer {
        direction: Direction::Write,
        region,
        at: 0,
        local: vec![memory.all()],
        token: 7,
    };
    socket.send_with(b"done", client, write)?;
    let (_, notices) = receive(socket, &mut [])?;
    let ended = notices.ended.first().ok_or("no end of the write")?;
    println!("write {}: {}", ended.token, ended.status);
    match ended.status {
        Status::Success => Ok(()),
        _ => Err("it has failed".into()),
    }
}

fn ask(socket: &RdsSocket, server: SocketAddr) -> Result<()> {
    let memory = Memory::new(TEXT.len())?;
    let register = || Control::Register(memory.all(), Lifetime::Once);
    // C RDS registers memory only with a connection that is up: try again when something has come.
    while let Err(error) = socket.send_with(b"write!", server, register()) {
        if error.kind() != ErrorKind::WouldBlock {
            return Err(error.into());
        }
        socket.send_to(b"", SocketAddr::new(server.ip(), rds_socket::PING_PORT))?;
        receive(socket, &mut [])?;
    }
    // The message comes after what was written.
    receive(socket, &mut [0; 64])?;
    let mut text = [0; TEXT.len()];
    memory.all().read(&mut text);
    println!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", local] => serve(&RdsSocket::bound(local.parse()?)?),
        ["ask", local, server] => ask(&RdsSocket::bound(local.parse()?)?, server.parse()?),
        _ => Err("usage: memory serve LOCAL:PORT | ask LOCAL:0 SERVER:PORT".into()),
    }
}
