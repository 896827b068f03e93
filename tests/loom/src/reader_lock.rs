// SPDX-License-Identifier: GPL-2.0

//! Models of `socket/reader_lock.rs`: readers of one socket.

use crate::{check, check_few, wait::WaitQueue};
use loom::{
    cell::UnsafeCell,
    sync::{Arc, Mutex},
    thread,
};
use reader_lock::ReaderLock;

#[path = "../../../socket/reader_lock.rs"]
mod reader_lock;

/// A socket, as `socket/state.rs` and `af_rds/recvmsg.rs` use it.
struct Socket {
    turn: ReaderLock,
    /// Number of queued messages.
    queue: Mutex<u32>,
    /// State that only the current reader accesses.
    reader: UnsafeCell<u32>,
    wait: WaitQueue,
}

impl Socket {
    fn new() -> Arc<Self> {
        let turn = ReaderLock::new();
        turn.note_readable(false);
        assert!(turn.take());
        assert!(!turn.give_back());
        Arc::new(Self {
            turn,
            queue: Mutex::new(0),
            reader: UnsafeCell::new(0),
            wait: WaitQueue::new(),
        })
    }

    fn deliver(&self) {
        let mut queue = self.queue.lock().unwrap();
        *queue += 1;
        self.turn.note_readable(true);
        drop(queue);
        self.wait.wake_one();
    }

    /// Takes a message if one is queued and no other thread is reading.
    fn take(&self) -> bool {
        if !self.turn.take() {
            return false;
        }
        let mut queue = self.queue.lock().unwrap();
        let taken = *queue > 0;
        *queue -= u32::from(taken);
        self.turn.note_readable(*queue > 0);
        drop(queue);
        // SAFETY: loom checks that no other thread accesses it.
        self.reader.with_mut(|count| unsafe { *count += 1 });
        if self.turn.give_back() {
            self.wait.wake_one();
        }
        taken
    }

    /// Models a blocking `recvmsg(2)`.
    fn read(&self) {
        let mut waited = false;
        while !self.take() {
            waited = true;
            self.wait.wait(|| self.turn.may_read());
        }
        // This may have been the only reader that was woken.
        if waited && self.turn.may_read() {
            self.wait.wake_one();
        }
    }
}

#[test]
fn each_reader_gets_a_message() {
    check_few(2, || {
        let socket = Socket::new();
        let readers = [(); 2].map(|()| {
            let socket = socket.clone();
            thread::spawn(move || socket.read())
        });
        socket.deliver();
        socket.deliver();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(*socket.queue.lock().unwrap(), 0);
    });
}

/// The non-waiting thread holds the lock while the message arrives, and takes none.
#[test]
fn a_reader_that_finds_the_lock_taken_is_woken() {
    check(|| {
        let socket = Socket::new();
        let reader = thread::spawn({
            let socket = socket.clone();
            move || socket.read()
        });
        let other = thread::spawn({
            let socket = socket.clone();
            move || {
                if socket.turn.take() && socket.turn.give_back() {
                    socket.wait.wake_one();
                }
            }
        });
        socket.deliver();
        reader.join().unwrap();
        other.join().unwrap();
    });
}
