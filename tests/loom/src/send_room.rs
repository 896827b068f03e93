// SPDX-License-Identifier: GPL-2.0

//! Models of `socket/send_room.rs`: senders of one socket, and acknowledgements that return room.

use crate::{
    check,
    kapi::sync::ReadOnce,
    sync::atomic::{Atomic, Relaxed},
    wait::WaitQueue,
};
use loom::{sync::Arc, thread};
use send_room::SendRoom;

#[path = "../../../socket/send_room.rs"]
mod send_room;

/// A socket, as `socket/state.rs` and `af_rds/sendmsg.rs` use it.
struct Socket {
    room: SendRoom,
    limit: Atomic<usize>,
    wait: WaitQueue,
}

impl Socket {
    /// Creates a socket with one byte charged.
    fn new(limit: usize) -> Arc<Self> {
        let socket = Self {
            room: SendRoom::new(),
            limit: Atomic::new(limit),
            wait: WaitQueue::new(),
        };
        assert!(socket.room.charge(1, socket.limit.read_once()));
        Arc::new(socket)
    }

    /// Charges a byte, and waits for room if needed.
    fn send(&self) {
        while !self.room.charge(1, self.limit.read_once()) {
            self.wait
                .wait(|| self.room.taken() < self.limit.read_once());
        }
    }

    fn acknowledge(&self) {
        if self.room.credit(1, || self.limit.read_once()) {
            self.wait.wake_all();
        }
    }
}

#[test]
fn a_sender_that_waits_for_room_is_woken() {
    check(|| {
        let socket = Socket::new(1);
        let senders = [(); 2].map(|()| {
            let socket = socket.clone();
            thread::spawn(move || {
                socket.send();
                socket.acknowledge();
            })
        });
        socket.acknowledge();
        for sender in senders {
            sender.join().unwrap();
        }
        assert_eq!(socket.room.taken(), 0);
    });
}

/// A lowered limit wakes no sender.
#[test]
fn a_limit_that_is_lowered_loses_no_wakeup() {
    check(|| {
        let socket = Socket::new(2);
        let sender = thread::spawn({
            let socket = socket.clone();
            move || socket.send()
        });
        let program = thread::spawn({
            let socket = socket.clone();
            move || socket.limit.store(1, Relaxed)
        });
        socket.acknowledge();
        sender.join().unwrap();
        program.join().unwrap();
        assert_eq!(socket.room.taken(), 1);
    });
}

/// A sender that finds room gets it, even if another sender charges concurrently.
#[test]
fn a_charge_succeeds_while_there_is_room() {
    check(|| {
        let socket = Socket::new(3);
        let other = thread::spawn({
            let socket = socket.clone();
            move || assert!(socket.room.charge(1, 3))
        });
        assert!(socket.room.charge(1, 3));
        other.join().unwrap();
        assert!(!socket.room.charge(1, 3));
    });
}
