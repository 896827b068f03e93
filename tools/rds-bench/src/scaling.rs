// SPDX-License-Identifier: GPL-2.0
//! The cost of operations with many connections.
//!
//! A local address has ten connections: to two adjacent remote addresses, with five types of
//! service each. The next local address uses other types of service. So from ten connections on,
//! the number of connections that concern one address is constant.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use rds_socket::{poll, PollFd, RdsSocket};

use crate::args::Args;
use crate::bind;
use crate::mark;
use crate::measure::{clock_cost, nanoseconds, once_each, repeat, Effort, Report, Samples, Unit};
use crate::peers;
use crate::traffic::{burst, receive, round_trips, round_trips_on, Pair, RdsPair};

/// Connections of an address.
const GROUP: u16 = 10;
/// Number of remote addresses to which they go.
const PEERS: u16 = 2;
/// Bytes of a message.
const SIZE: usize = 64;
/// A receive limit, and the size of a message that exceeds it.
const LIMIT: usize = 4096;
const TOO_LONG: usize = 8000;
/// Long enough for a congestion map to arrive, and for other work of the kernel.
const SETTLE: Duration = Duration::from_millis(50);
/// Seconds in which nothing is sent: each connection is checked several times.
const IDLE_SECONDS: u64 = 60;
/// Quiet time before that: receive rings become small again, and idle connections acknowledge.
const CALM: Duration = Duration::from_secs(60);

type Print<'a> = &'a mut dyn FnMut(Report) -> Result<()>;

/// Brings up the connections that are not known, and measures with all `count` of them.
pub(crate) fn measure(args: &Args, count: u16, print: Print<'_>) -> Result<()> {
    ensure!(args.known < count, "all connections are known");
    let pairs = (0..count)
        .map(|i| {
            let (index, tos) = (1 + i / GROUP, i / PEERS % 256);
            let local = peers::beside(args.local, u8::try_from(index)?);
            let remote = peers::beside(args.remote, u8::try_from(index + i % PEERS)?);
            RdsPair::with_tos([(local, 0).into(), (remote, 0).into()], u8::try_from(tos)?)
        })
        .collect::<Result<Vec<_>>>()?;
    if args.storm {
        return report(print, "storm", Unit::Nanoseconds, storm(&pairs)?);
    }
    let (_, new) = pairs.split_at(args.known.into());
    let made = peers::connect(new)?;
    report(print, "setup", Unit::Nanoseconds, made.setup())?;
    report(print, "memory", Unit::Kibibytes, made.memory())?;
    report(print, "slab", Unit::Kibibytes, made.slab())?;
    operations(args.quick, &pairs, print)
}

fn operations(quick: bool, pairs: &[RdsPair], print: Print<'_>) -> Result<()> {
    let few = |warm_up, samples| match quick {
        true => Effort {
            warm_up: 2,
            samples: 5,
        },
        false => Effort { warm_up, samples },
    };
    let one = pairs.first().context("there are no connections")?;
    let [near, far] = one.ends();
    let (local, remote) = (near.local_addr()?, far.local_addr()?);
    let any_port = SocketAddr::new(local.ip(), 0);

    let mut row = |name, samples: Result<Samples>| {
        let samples = samples.with_context(|| format!("cannot measure {name}"))?;
        report(print, name, Unit::Instructions, samples)
    };
    row("rtt-one", round_trips(one, SIZE, few(100, 500)))?;
    let all = few(pairs.len(), pairs.len().max(500));
    row("rtt-all", round_trips_on(pairs, SIZE, all))?;
    let first = pairs.iter().take(PEERS.into());
    let remotes: Vec<_> = first.map(|pair| &pair.ends()[1]).collect();
    let turns = round_trips_in_turn(any_port, &remotes, few(100, 500));
    row("rtt-turns", turns)?;
    row("bind", bind::binds(any_port, few(50, 500)))?;
    row("close", closes(any_port, few(50, 500)))?;
    let closed = closes_with_unacknowledged(any_port, remote, one, few(20, 100));
    row("close-unacked", closed)?;
    let changed = congestion_changes(any_port, far, few(5, 40));
    row("congestion", changed)?;
    report(print, "idle", Unit::Nanoseconds, idle(one)?)
}

fn report(print: Print<'_>, row: &'static str, unit: Unit, samples: Samples) -> Result<()> {
    let report = samples.report(row, unit);
    print(report.with_context(|| format!("{row} has no samples"))?)
}

/// Sends the first message of all connections, then waits until all have arrived: one sample.
fn storm(pairs: &[RdsPair]) -> Result<Samples> {
    sleep(SETTLE);
    mark::start();
    let start = Instant::now();
    pairs.iter().try_for_each(RdsPair::ask)?;
    pairs.iter().try_for_each(RdsPair::take_first)?;
    let took = start.elapsed();
    mark::stop();
    Ok(Samples {
        values: vec![nanoseconds(took)],
        marked: pairs.len() as u64,
    })
}

/// Measures round trips of one socket with several others in turn, each of which needs a look-up of
/// the connection.
fn round_trips_in_turn(
    addr: SocketAddr,
    remotes: &[&RdsSocket],
    effort: Effort,
) -> Result<Samples> {
    let socket = RdsSocket::bound(addr)?;
    let (home, payload, mut buffer) = (socket.local_addr()?, [0x55; SIZE], [0; SIZE]);
    let addrs = remotes.iter().map(|remote| remote.local_addr());
    let addrs = addrs.collect::<Result<Vec<_>, _>>()?;
    let mut turns = remotes.iter().zip(addrs).cycle();
    repeat(effort, 1, || {
        let (remote, addr) = turns.next().context("there are no peers")?;
        for (from, to, addr) in [(&socket, *remote, addr), (*remote, &socket, home)] {
            from.send_to(&payload, addr)?;
            take(to, &mut buffer)?;
        }
        Ok(())
    })
}

/// Waits for a message that fills the buffer. RDS also reports a socket as readable when the
/// congestion map of a peer has changed.
fn take(socket: &RdsSocket, buffer: &mut [u8]) -> Result<()> {
    loop {
        poll(&mut [PollFd::new(socket, PollFd::READABLE)], None)?;
        match socket.recv_from(buffer) {
            Ok(message) if message.len == buffer.len() => return Ok(()),
            Ok(message) => bail!("received {} bytes of {}", message.len, buffer.len()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e).context("cannot receive"),
        }
    }
}

/// Closes sockets that are bound to `addr`'s address and have sent nothing.
fn closes(addr: SocketAddr, effort: Effort) -> Result<Samples> {
    once_each(
        effort,
        || Ok(std::cell::Cell::new(Some(RdsSocket::bound(addr)?))),
        |socket| {
            drop(socket.take());
            Ok(())
        },
    )
}

/// Closes sockets whose message the peer has not acknowledged.
fn closes_with_unacknowledged(
    addr: SocketAddr,
    to: SocketAddr,
    pair: &RdsPair,
    effort: Effort,
) -> Result<Samples> {
    let clock = clock_cost();
    each_time(effort, || {
        let socket = RdsSocket::bound(addr)?;
        socket.send_to(&[0; SIZE], to)?;
        let start = Instant::now();
        drop(socket);
        let took = start.elapsed();
        receive(pair, 1, SIZE, &mut [0; SIZE])?;
        sleep(SETTLE);
        Ok(nanoseconds(took) - clock)
    })
}

/// Reads a message that exceeded the socket's limit. The kernel then notifies the peers of its
/// address that the port accepts messages again.
fn congestion_changes(addr: SocketAddr, sender: &RdsSocket, effort: Effort) -> Result<Samples> {
    let socket = RdsSocket::bound(addr)?;
    socket.set_receive_limit(LIMIT)?;
    let to = socket.local_addr()?;
    let mut buffer = [0; TOO_LONG];
    let clock = clock_cost();
    each_time(effort, || {
        sender.send_to(&buffer, to).context("cannot send")?;
        sleep(SETTLE);
        let start = Instant::now();
        let message = socket.recv_from(&mut buffer)?;
        let took = start.elapsed();
        ensure!(message.len == TOO_LONG, "received {} bytes", message.len);
        sleep(SETTLE);
        Ok(nanoseconds(took) - clock)
    })
}

/// Measures a time without traffic, a while after bursts that have enlarged a receive ring. It
/// returns one sample, the elapsed time; only a profiler can measure the work in it.
fn idle(pair: &RdsPair) -> Result<Samples> {
    for _ in 0..4 {
        burst(pair, &[0; TOO_LONG], 64, &mut [0; TOO_LONG])?;
    }
    sleep(CALM);
    mark::start();
    let start = Instant::now();
    sleep(Duration::from_secs(IDLE_SECONDS));
    let took = start.elapsed();
    mark::stop();
    Ok(Samples {
        values: vec![nanoseconds(took)],
        marked: IDLE_SECONDS,
    })
}

/// Returns samples whose measurement is part of `sample`. The marks include all of its work.
fn each_time(effort: Effort, mut sample: impl FnMut() -> Result<f64>) -> Result<Samples> {
    for _ in 0..effort.warm_up {
        sample()?;
    }
    mark::start();
    let values = (0..effort.samples).map(|_| sample()).collect::<Result<_>>();
    mark::stop();
    Ok(Samples {
        values: values?,
        marked: effort.samples as u64,
    })
}
