// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! RDMA: `memory serve LOCAL:PORT` writes to memory that `memory ask LOCAL:0 SERVER:PORT`
//! registers.

use std::error::Error;
use std::io::ErrorKind;
use std::net::SocketAddr;

use rds_socket::{
    poll, Control, Direction, Lifetime, Memory, Notices, PollFd, RdsSocket, Received, PING_PORT,
};

const TEXT: &[u8] = b"written by the peer\0";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Receives the next message, or notifications of ended operations.
fn receive(socket: &RdsSocket) -> Result<(Received, Notices)> {
    loop {
        poll(&mut [PollFd::new(socket, PollFd::READABLE)], None)?;
        match socket.recv_with(&mut []) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return Ok(other?),
        }
    }
}

/// Writes to the memory of each client, until it is killed.
fn serve(socket: &RdsSocket) -> Result<()> {
    let memory = Memory::new(TEXT.len())?;
    memory.all().write(TEXT);
    loop {
        let (request, notices) = receive(socket)?;
        if let (Some(client), Some(region)) = (request.from, notices.region) {
            let write = Control::Transfer {
                direction: Direction::Write,
                region,
                at: 0,
                local: vec![memory.all()],
                token: 7,
            };
            socket.send_with(b"", client, write)?;
        }
        for ended in notices.ended {
            println!("write {}: {}", ended.token, ended.status);
        }
    }
}

/// Registers memory, and prints the bytes that the server has written to it.
fn ask(socket: &RdsSocket, server: SocketAddr) -> Result<()> {
    let memory = Memory::new(TEXT.len())?;
    // C RDS registers memory only with an established connection; the answer to a ping shows that
    // it is.
    socket.send_to(b"", SocketAddr::new(server.ip(), PING_PORT))?;
    receive(socket)?;
    let region = Control::Register(memory.all(), Lifetime::Once);
    socket.send_with(b"", server, region)?;
    // This message comes after the written bytes.
    receive(socket)?;
    let mut text = [0; TEXT.len()];
    memory.all().read(&mut text);
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    println!("{}", String::from_utf8_lossy(text));
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
