// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Further functions of a socket, between two addresses of this machine's RDMA devices: `tour
//! ADDRESS ADDRESS`.
//!
//! Each step checks its result, as atomic operations and regions without a message need support by
//! the kernel and by devices.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use rds_socket::{
    Area, Atomic, Control, Cookie, Direction, Lifetime, Memory, RdsSocket, Span, Status, Transport,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Two blocking sockets, each connected to the other.
fn connected(addresses: [IpAddr; 2]) -> Result<[RdsSocket; 2]> {
    let [a, b] = addresses.map(|ip| RdsSocket::bound(SocketAddr::new(ip, 0)));
    let (a, b) = (a?, b?);
    for (from, to) in [(&a, &b), (&b, &a)] {
        assert!(from.peer_addr().is_err());
        from.connect(to.local_addr()?)?;
        assert_eq!(from.peer_addr()?, to.local_addr()?);
        assert_eq!(from.transport()?, Some(Transport::Rdma));
        from.set_nonblocking(false)?;
        from.set_recverr(true)?;
    }
    Ok([a, b])
}

/// Sends a message, and shows its arrival time and latency.
fn times(a: &RdsSocket, b: &RdsSocket) -> Result<()> {
    b.set_receive_timeout(Some(Duration::from_millis(1)))?;
    let error = b.recv_from(&mut []).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    b.set_nonblocking(true)?;
    let error = b.recv_from(&mut []).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    b.set_nonblocking(false)?;
    b.set_receive_timeout(None)?;
    a.set_send_timeout(Some(Duration::from_secs(60)))?;

    b.set_timestamps(true)?;
    let all = [Span::Start, Span::Reassembly, Span::Delivery];
    b.set_latency_trace(&all)?;
    let start = SystemTime::now();
    a.send(b"hello")?;
    let (received, notices) = b.recv_with(&mut [0; 9])?;
    assert_eq!((received.len, received.from), (5, Some(a.local_addr()?)));
    let at = notices.queued_at.ok_or("no time")?;
    // The kernel's clock may be read with less precision.
    assert!(at + Duration::from_millis(20) >= start && at <= SystemTime::now());
    let spans: Vec<_> = notices.latency.iter().map(|(span, _)| *span).collect();
    assert_eq!(spans, all);
    let least = Duration::from_nanos(1);
    assert!(notices.latency.iter().all(|(_, time)| *time >= least));
    println!("times: queued at {at:?}, took {:?}", notices.latency);
    Ok(())
}

/// Does an operation, and waits for its end and for the message that carried it.
fn operate(from: &RdsSocket, to: &RdsSocket, control: Control<'_>) -> Result<()> {
    from.send_with(b"!", to.local_addr()?, control)?;
    let (_, notices) = from.recv_with(&mut [])?;
    let [ended] = notices.ended[..] else {
        return Err(format!("{notices:?}").into());
    };
    assert_eq!(ended.token, 5);
    assert_eq!(to.recv_from(&mut [0])?.len, 1);
    match ended.status {
        Status::Success => Ok(()),
        status => Err(status.to_string().into()),
    }
}

fn transfer(direction: Direction, region: Cookie, at: u64, local: Area<'_>) -> Control<'_> {
    let (local, token) = (vec![local], 5);
    Control::Transfer {
        direction,
        region,
        at,
        local,
        token,
    }
}

/// Writes bytes of a file behind the first eight of leaked memory, and reads them back.
fn transfers(a: &RdsSocket, b: &RdsSocket) -> Result<()> {
    // The file system is one in memory: on a disk, registration may fail for some pages.
    let path = format!("/dev/shm/rds-tour-{}", std::process::id());
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    file.set_len(4096)?;
    let shared = Memory::of_file(&file, 0, 4096)?;
    let ours = shared.area(0, 11).ok_or("too short")?;
    ours.write(b"hello world");

    let theirs = Area::of_leaked(Box::leak(vec![0; 64].into_boxed_slice()));
    let region = b.register_for(a.local_addr()?, theirs, Lifetime::UntilFreed)?;
    operate(a, b, transfer(Direction::Write, region, 8, ours))?;
    let mut found = [0; 20];
    theirs.read(&mut found);
    assert_eq!(&found, b"\0\0\0\0\0\0\0\0hello world\0");
    operate(
        a,
        b,
        transfer(
            Direction::Read,
            region,
            14,
            ours.part(0, 5).ok_or("too short")?,
        ),
    )?;
    let mut found = [0; 11];
    ours.read(&mut found);
    assert_eq!(&found, b"world world");
    b.invalidate(region)?;
    assert!(b.free(region).is_err());
    println!("transfers: memory of a file and memory that was given away");
    Ok(())
}

/// Changes a number behind another one.
fn atomics(a: &RdsSocket, b: &RdsSocket) -> Result<()> {
    let (ours, theirs) = (Memory::new(8)?, Memory::new(16)?);
    let number = theirs.area(8, 8).ok_or("too short")?;
    number.write(&40u64.to_ne_bytes());
    let region = b.register(theirs.all(), Lifetime::UntilFreed)?;
    let change = |operation| {
        let (local, at, token) = (ours.all(), 8, 5);
        let control = Control::Atomic {
            operation,
            region,
            at,
            local,
            token,
        };
        operate(a, b, control).map(|()| (ours.all().number(), number.number()))
    };
    assert_eq!(change(Atomic::FetchAdd { add: 2 })?, (40, 42));
    let compare = 42;
    assert_eq!(change(Atomic::CompareSwap { compare, swap: 7 })?, (42, 7));
    assert_eq!(change(Atomic::CompareSwap { compare, swap: 9 })?, (7, 7));
    // The masks have the same meaning as no masks, which any device supports.
    let (add, no_carry) = (3, 0);
    assert_eq!(change(Atomic::MaskedFetchAdd { add, no_carry })?, (7, 10));
    let swap_low = |mask| Atomic::MaskedCompareSwap {
        compare: 10,
        swap: 0xff,
        compare_mask: u64::MAX,
        swap_mask: mask,
    };
    assert_eq!(change(swap_low(u64::MAX))?, (10, 0xff));
    match change(swap_low(0xf)) {
        Err(error) if !error.is::<io::Error>() => return Err(error),
        Err(error) => println!("atomics: no masks: {error}"),
        Ok(found) => println!("atomics: {found:?}"),
    }
    b.free(region)?;
    Ok(())
}

fn main() -> Result<()> {
    let args = std::env::args().skip(1).map(|arg| arg.parse());
    let addresses: Vec<IpAddr> = args.collect::<std::result::Result<_, _>>()?;
    let Ok(addresses) = <[IpAddr; 2]>::try_from(addresses) else {
        return Err("usage: tour ADDRESS ADDRESS".into());
    };
    let [a, b] = connected(addresses)?;
    times(&a, &b)?;
    transfers(&a, &b)?;
    atomics(&a, &b)?;
    println!("all is well");
    Ok(())
}
