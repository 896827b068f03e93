// SPDX-License-Identifier: GPL-2.0
//! The messages between the two ends, over TCP: lines of JSON.
//!
//! Oracle's rds-stress writes a C structure that differs between versions and does not contain its
//! version. So the two do not work with each other, and report that.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::options::Options;
use crate::stats::Counts;

/// Version of the protocol, including that of the RDS messages.
const VERSION: u32 = 3;

/// Limit for the length of a line.
const LONGEST: u64 = 1 << 16;

/// A message of an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Active end: the parameters of the test.
    Hello(Hello),
    /// Passive end: all tasks have their sockets.
    Ready,
    /// Active end: my tasks have their sockets; continue.
    Go,
    /// Active end: no more requests.
    Stop,
    /// Passive end: all my requests are answered.
    Drained,
    /// Active end: all my requests are answered, too. Both ends: my counts.
    Finish(Counts),
    /// Either end: I end the test early, as I was ordered.
    Abort,
    /// Either end: the test failed, with the reason.
    Failed(String),
}

/// The first message of the active end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    version: u32,
    pub(crate) options: Options,
    /// The address of the active end's first RDS socket.
    pub(crate) active: SocketAddr,
    /// The address of the passive end's first RDS socket.
    pub(crate) passive: SocketAddr,
}

impl Hello {
    /// Creates it for ends with these addresses; `port` is that of TCP, and the RDS ports follow
    /// it.
    pub(crate) fn new(
        options: Options,
        active: IpAddr,
        passive: IpAddr,
        port: u16,
    ) -> Result<Self> {
        // On one address, the ports of one end follow those of the other.
        let skip = if active == passive { options.tasks } else { 0 };
        let first = u32::from(port) + 1;
        let last = first + u32::from(skip) + u32::from(options.tasks) - 1;
        ensure!(
            last <= 65535,
            "-p {port}: there are not enough ports after it"
        );
        let first = port + 1;
        Ok(Hello {
            version: VERSION,
            options,
            active: SocketAddr::new(active, first + skip),
            passive: SocketAddr::new(passive, first),
        })
    }

    /// Fails if this end cannot do what the other program requests.
    pub(crate) fn check(&self) -> Result<()> {
        let version = self.version;
        ensure!(
            version == VERSION,
            "the other end has version {version} of the protocol, not {VERSION}"
        );
        self.options.check()?;
        for first in [self.active, self.passive] {
            let last = u32::from(first.port()) + u32::from(self.options.tasks) - 1;
            ensure!(
                first.port() > 0 && last <= 65535,
                "there are not enough ports after {first}"
            );
        }
        Ok(())
    }
}

/// The connection to the other end.
#[derive(Debug)]
pub(crate) struct Control(TcpStream);

impl Control {
    /// Connects to the passive end, from `local` if there is one.
    pub(crate) fn connect(local: Option<SocketAddr>, to: SocketAddr, retries: u32) -> Result<Self> {
        for attempt in 0.. {
            match try_connect(local, to) {
                Ok(stream) => return Ok(Control(stream)),
                Err(_) if attempt < retries => sleep(Duration::from_secs(1)),
                Err(e) => {
                    let hint = "is a passive rds-stress waiting there?";
                    return Err(e).with_context(|| format!("cannot connect to {to}: {hint}"));
                }
            }
        }
        bail!("cannot connect to {to}")
    }

    /// Waits for an active end.
    pub(crate) fn accept(listener: &TcpListener) -> Result<Self> {
        let (stream, _) = listener
            .accept()
            .context("cannot accept a TCP connection")?;
        Ok(Control(stream))
    }

    /// Returns the addresses of this end and the other.
    pub(crate) fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        let canonical = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
        let local = self
            .0
            .local_addr()
            .context("the TCP connection has no address")?;
        let peer = self.0.peer_addr().context("the other end is gone")?;
        Ok((canonical(local), canonical(peer)))
    }

    pub(crate) fn send(&mut self, message: &Message) -> Result<()> {
        let mut line = serde_json::to_string(message).context("cannot convert to JSON")?;
        line.push('\n');
        let sent = self.0.write_all(line.as_bytes());
        sent.context("cannot write to the other end")
    }

    /// Returns a reader for the other direction.
    pub(crate) fn reader(&self) -> Result<Reader<TcpStream>> {
        let stream = self.0.try_clone().context("cannot duplicate a socket")?;
        Ok(Reader(BufReader::new(stream)))
    }
}

fn try_connect(local: Option<SocketAddr>, to: SocketAddr) -> rustix::io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if let Some(local) = local {
        rustix::net::bind(&socket, &local)?;
    }
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// Reads the messages of the other end.
#[derive(Debug)]
pub(crate) struct Reader<R>(BufReader<R>);

impl<R: Read> Reader<R> {
    pub(crate) fn read(&mut self) -> Result<Message> {
        let buffered = self
            .0
            .fill_buf()
            .context("cannot read from the other end")?;
        let Some(first) = buffered.first() else {
            bail!("the other end has closed the connection");
        };
        ensure!(
            matches!(first, b'{' | b'"'),
            "the other end is not this rds-stress: Oracle's speaks another protocol"
        );
        let mut line = String::new();
        let read = self.0.by_ref().take(LONGEST).read_line(&mut line);
        read.context("cannot read from the other end")?;
        serde_json::from_str(&line).context("invalid message from the other end")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::example;

    fn reader(bytes: &[u8]) -> Reader<&[u8]> {
        Reader(BufReader::new(bytes))
    }

    fn hello(active: &str, passive: &str, port: u16) -> Result<Hello> {
        Hello::new(example(), active.parse()?, passive.parse()?, port)
    }

    #[test]
    fn messages_survive_the_wire() {
        let messages = [
            Message::Hello(hello("fd00::1", "fd00::2", 4000).unwrap()),
            Message::Ready,
            Message::Go,
            Message::Stop,
            Message::Drained,
            Message::Finish(Counts {
                req_tx: u64::MAX,
                ..Counts::default()
            }),
            Message::Abort,
            Message::Failed("a \"word\"\nand a line".to_owned()),
        ];
        let lines: String = messages
            .iter()
            .map(|x| serde_json::to_string(x).unwrap() + "\n")
            .collect();
        let mut reader = reader(lines.as_bytes());
        for message in messages {
            assert_eq!(reader.read().unwrap(), message);
        }
        let end = reader.read().unwrap_err().to_string();
        assert!(end.contains("closed"), "{end}");
    }

    #[test]
    fn another_program_is_recognised() {
        let error = reader(&[0; 70]).read().unwrap_err().to_string();
        assert!(error.contains("Oracle"), "{error}");
        assert!(reader(b"{\"Hello\":5}\n").read().is_err());
        let endless = vec![b'"'; 1 << 20];
        assert!(reader(&endless).read().is_err());
    }

    #[test]
    fn ports_do_not_meet_on_one_address() {
        let two = hello("10.0.0.1", "10.0.0.2", 4000).unwrap();
        assert_eq!((two.active.port(), two.passive.port()), (4001, 4001));
        let one = hello("127.0.0.1", "127.0.0.1", 4000).unwrap();
        assert_eq!((one.active.port(), one.passive.port()), (4003, 4001));
        assert!(one.check().is_ok());
        assert!(hello("10.0.0.1", "10.0.0.2", 65533).is_ok());
        assert!(hello("10.0.0.1", "10.0.0.2", 65534).is_err());
        assert!(hello("::1", "::1", 65532).is_err());
    }

    #[test]
    fn requests_of_another_program_are_checked() {
        let good = hello("10.0.0.1", "10.0.0.2", 4000).unwrap();
        let bad: [fn(&mut Hello); 4] = [
            |x| x.version += 1,
            |x| x.options.tasks = 0,
            |x| x.active.set_port(65535),
            |x| x.passive.set_port(0),
        ];
        for spoil in bad {
            let mut hello = good.clone();
            spoil(&mut hello);
            assert!(hello.check().is_err(), "{hello:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = reader(&bytes).read();
        }
    }
}
