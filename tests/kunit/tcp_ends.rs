// SPDX-License-Identifier: GPL-2.0

//! Two connected TCP sockets of the kernel, over the loopback device, for the suites about TCP.

use crate::kapi::{
    net::{
        tcp::{
            SendBatch,
            TcpAddr,
            TcpSocket,
            TcpState, //
        },
        tcp_events::{
            TcpEvent,
            TcpEvents,
            TcpRead, //
        },
        NetRef, //
    },
    sync::Completion, //
};
use core::net::{
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

pub(super) const HOST: Ipv6Addr = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
pub(super) const PORT: u16 = 16386;
const TIMEOUT_MS: u32 = 5000;

/// The events of a socket.
#[pin_data]
pub(super) struct Events {
    #[pin]
    happened: Completion,
    pub(super) readable: Atomic<u32>,
    pub(super) writable: Atomic<u32>,
    pub(super) state: Atomic<u32>,
}

impl TcpEvents for Events {
    fn event(self: &Arc<Self>, event: TcpEvent<'_>) {
        match event {
            TcpEvent::Acceptable | TcpEvent::Readable(_) => self.readable.fetch_add(1, Relaxed),
            TcpEvent::Writable => self.writable.fetch_add(1, Relaxed),
            TcpEvent::State => self.state.fetch_add(1, Relaxed),
        };
        self.happened.signal();
    }
}

impl Events {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                happened <- Completion::new(),
                readable: Atomic::new(0),
                writable: Atomic::new(0),
                state: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for events until `found` returns something.
    pub(super) fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> Result<T> {
        loop {
            if let Some(found) = found() {
                return Ok(found);
            }
            self.happened.wait(TIMEOUT_MS)?;
        }
    }
}

/// Two connected sockets.
pub(super) struct Ends {
    pub(super) left: TcpSocket,
    pub(super) left_events: Arc<Events>,
    pub(super) right: TcpSocket,
    pub(super) right_events: Arc<Events>,
}

pub(super) fn connected() -> Result<Ends> {
    let (left_events, right_events) = (Events::new()?, Events::new()?);
    let accepting = Events::new()?;
    let mut listener = TcpSocket::listen(&NetRef::init()?, PORT, 4)?;
    listener.watch(accepting.clone())?;
    let mut left = TcpSocket::for_peer(&NetRef::init()?, HOST)?;
    left.watch(left_events.clone())?;
    left.connect(&TcpAddr {
        addr: HOST,
        port: PORT,
        scope: 0,
    })?;
    let mut right = accepting.until(|| listener.accept().ok().flatten())?;
    right.watch(right_events.clone())?;
    left_events.until(|| (left.state() == TcpState::Open).then_some(()))?;
    Ok(Ends {
        left,
        left_events,
        right,
        right_events,
    })
}

pub(super) fn send(socket: &TcpSocket, pieces: &[&[u8]]) -> Result<usize> {
    let mut batch = SendBatch::new();
    for piece in pieces {
        assert!(batch.add(piece));
    }
    socket.send(&mut batch)
}

pub(super) fn bytes(received: TcpRead) -> Option<usize> {
    match received {
        TcpRead::Bytes(count) => Some(count),
        TcpRead::Nothing | TcpRead::End => None,
    }
}
