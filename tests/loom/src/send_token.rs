// SPDX-License-Identifier: GPL-2.0

//! Models of `conn/send_token.rs`: contexts that send on one connection.

use crate::{
    check, check_few,
    sync::atomic::{Atomic, Relaxed},
};
use loom::{
    sync::{Arc, Mutex, MutexGuard},
    thread,
};
use send_token::{Holding, SendToken};

#[path = "../../../conn/send_token.rs"]
mod send_token;

#[derive(Default)]
struct Tx {
    unsent: Vec<u32>,
    posted: Vec<u32>,
}

/// A connection, as `conn/tx_lock.rs` and `conn/send.rs` use the token.
struct Connection {
    tx: Mutex<Tx>,
    inbox: Mutex<Vec<u32>>,
    has_mail: Atomic<bool>,
    token: SendToken,
    /// The link has room.
    room: Atomic<bool>,
}

impl Connection {
    fn new(room: bool) -> Arc<Self> {
        let connection = Self {
            tx: Mutex::new(Tx::default()),
            inbox: Mutex::new(Vec::new()),
            has_mail: Atomic::new(false),
            token: SendToken::new(),
            room: Atomic::new(room),
        };
        assert!(!connection.has_mail.load(Relaxed));
        assert_eq!(connection.room.load(Relaxed), room);
        connection.is_free();
        Arc::new(connection)
    }

    /// Asserts that nobody holds the token.
    fn is_free(&self) {
        let token = self.token.ask().expect("nobody holds the token");
        assert!(self.token.give_back(token).is_none());
    }

    fn lock(&self) -> MutexGuard<'_, Tx> {
        let mut tx = self.tx.lock().unwrap();
        self.empty_inbox(&mut tx);
        tx
    }

    fn empty_inbox(&self, tx: &mut Tx) {
        if self.has_mail.load(Relaxed) {
            let mut inbox = self.inbox.lock().unwrap();
            tx.unsent.append(&mut inbox);
            self.has_mail.store(false, Relaxed);
        }
    }

    fn transmit(&self, tx: &mut Tx) {
        if self.room.load(Relaxed) {
            let Tx { unsent, posted } = tx;
            posted.append(unsent);
        }
    }

    fn send(&self, message: u32) {
        if let Ok(mut tx) = self.tx.try_lock() {
            self.empty_inbox(&mut tx);
            tx.unsent.push(message);
            return self.transmit_and_unlock(tx);
        }
        let mut inbox = self.inbox.lock().unwrap();
        inbox.push(message);
        self.has_mail.store(true, Relaxed);
        drop(inbox);
        self.ask();
    }

    /// Models `Connection::resume`.
    fn resume(&self) {
        match self.tx.try_lock() {
            Ok(mut tx) => {
                self.empty_inbox(&mut tx);
                self.transmit_and_unlock(tx);
            }
            Err(_) => self.ask(),
        }
    }

    fn ask(&self) {
        if let Some(token) = self.token.ask() {
            let mut tx = self.lock();
            self.transmit(&mut tx);
            self.finish_and_unlock(tx, Some(token));
        }
    }

    fn transmit_and_unlock(&self, mut tx: MutexGuard<'_, Tx>) {
        let token = self.token.ask();
        self.transmit(&mut tx);
        self.finish_and_unlock(tx, token);
    }

    fn finish_and_unlock(&self, mut tx: MutexGuard<'_, Tx>, mut token: Option<Holding>) {
        while let Some(holding) = token {
            token = self.token.give_back(holding);
            if token.is_some() {
                self.empty_inbox(&mut tx);
                self.transmit(&mut tx);
            }
        }
    }

    /// Asserts that these messages were posted, each once and none out of its sender's order.
    fn has_posted(&self, messages: &[u32]) {
        self.is_free();
        let tx = self.tx.lock().unwrap();
        let mut posted = tx.posted.clone();
        posted.sort_unstable();
        assert_eq!(posted, messages);
        for sender in 0..3 {
            let of_sender = tx.posted.iter().filter(|&&message| message / 10 == sender);
            assert!(of_sender.is_sorted());
        }
    }
}

#[test]
fn each_message_is_posted_once_and_in_order() {
    check_few(2, || {
        let connection = Connection::new(true);
        let others = [10, 20].map(|message| {
            let connection = connection.clone();
            thread::spawn(move || connection.send(message))
        });
        connection.send(1);
        connection.send(2);
        for other in others {
            other.join().unwrap();
        }
        connection.has_posted(&[1, 2, 10, 20]);
    });
}

/// The other context locks the send side for something else, and transmits nothing.
#[test]
fn a_message_that_is_left_to_a_context_that_does_not_send_is_posted() {
    check(|| {
        let connection = Connection::new(true);
        let other = thread::spawn({
            let connection = connection.clone();
            move || drop(connection.lock())
        });
        let sender = thread::spawn({
            let connection = connection.clone();
            move || connection.send(10)
        });
        connection.send(1);
        other.join().unwrap();
        sender.join().unwrap();
        connection.has_posted(&[1, 10]);
    });
}

#[test]
fn room_that_comes_during_a_transmission_is_used() {
    check(|| {
        let connection = Connection::new(false);
        let completion = thread::spawn({
            let connection = connection.clone();
            move || {
                connection.room.store(true, Relaxed);
                connection.resume();
            }
        });
        connection.send(1);
        completion.join().unwrap();
        connection.has_posted(&[1]);
    });
}

/// The holder leaves further transmissions to a work item, which may run at any time.
#[test]
fn a_token_that_is_handed_over_is_answered() {
    check_few(2, || {
        let connection = Connection::new(true);
        let others = [10, 20].map(|message| {
            let connection = connection.clone();
            thread::spawn(move || connection.send(message))
        });
        let mut tx = connection.lock();
        tx.unsent.push(1);
        let token = connection.token.ask();
        connection.transmit(&mut tx);
        let left = token.and_then(|token| connection.token.give_back(token));
        drop(tx);
        if left.is_some() {
            let token = connection.token.take_over();
            let mut tx = connection.lock();
            connection.transmit(&mut tx);
            connection.finish_and_unlock(tx, Some(token));
        }
        for other in others {
            other.join().unwrap();
        }
        connection.has_posted(&[1, 10, 20]);
    });
}
