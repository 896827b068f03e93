// SPDX-License-Identifier: GPL-2.0

//! Models of `msg/path_table.rs`: senders, and messages that move to the first path.

use crate::{check, check_few, proto::mprds::PathCount};
use loom::{
    sync::{Arc, Mutex, MutexGuard},
    thread,
};
use path_table::{PathTable, PlaceIndex};

#[path = "../../../msg/path_table.rs"]
mod path_table;

/// A message: its number, and its place.
type Message = (u32, PlaceIndex);

/// The queue of a path.
struct Queue {
    path: u8,
    messages: Vec<Message>,
    is_open: bool,
}

/// A connection with two paths.
struct Connection {
    table: PathTable<2>,
    paths: [Mutex<Queue>; 2],
}

impl Connection {
    /// With this number the port has place 1, whose path is 1 if there are two.
    const SECRET: u16 = 12;
    const PORT: u16 = 1;

    fn new() -> Arc<Self> {
        let queue = |path| {
            Mutex::new(Queue {
                path,
                messages: Vec::new(),
                is_open: true,
            })
        };
        let connection = Self {
            table: PathTable::new(Self::SECRET),
            paths: [queue(0), queue(1)],
        };
        connection.send(0, PathCount::Two);
        connection.arrive(1, &[0]);
        connection.table.leave(0);
        Arc::new(connection)
    }

    fn lock(&self, path: u8) -> MutexGuard<'_, Queue> {
        self.paths[usize::from(path)].lock().unwrap()
    }

    fn send(&self, number: u32, count: PathCount) {
        let place = self.table.add(Self::PORT, count);
        self.queue(number, place);
    }

    /// Locks the queue for a message at this place.
    fn lock_for(&self, place: PlaceIndex) -> MutexGuard<'_, Queue> {
        loop {
            let path = self.table.path(place);
            let queue = self.lock(path);
            if self.table.belongs(place, path, queue.is_open) {
                return queue;
            }
        }
    }

    fn queue(&self, number: u32, place: PlaceIndex) {
        self.lock_for(place).messages.push((number, place));
    }

    /// Moves all messages to the first path, and closes the other one.
    fn close(&self) {
        loop {
            let mut other = self.lock(1);
            if other.messages.is_empty() {
                other.is_open = false;
                self.table.leave(1);
                return;
            }
            let message = other.messages.remove(0);
            drop(other);
            self.lock(0).messages.push(message);
        }
    }

    /// Drops what is in the queue of a path.
    fn arrive(&self, path: u8, numbers: &[u32]) {
        let messages = std::mem::take(&mut self.lock(path).messages);
        let arrived: Vec<u32> = messages.iter().map(|(number, _)| *number).collect();
        assert_eq!(arrived, numbers);
        for (_, place) in messages {
            self.table.remove(place);
        }
    }
}

#[test]
fn messages_that_move_stay_in_order() {
    check(|| {
        let connection = Connection::new();
        connection.send(1, PathCount::Two);
        let mover = thread::spawn({
            let connection = connection.clone();
            move || connection.close()
        });
        connection.send(2, PathCount::Two);
        connection.send(3, PathCount::One);
        mover.join().unwrap();
        connection.arrive(1, &[]);
        connection.arrive(0, &[1, 2, 3]);
    });
}

/// A sender that has seen the path before may find it open again.
#[test]
fn messages_follow_those_that_have_moved() {
    check(|| {
        let connection = Connection::new();
        connection.send(1, PathCount::Two);
        let mover = thread::spawn({
            let connection = connection.clone();
            move || {
                connection.close();
                connection.lock(1).is_open = true;
            }
        });
        connection.send(2, PathCount::Two);
        mover.join().unwrap();
        connection.arrive(1, &[]);
        connection.arrive(0, &[1, 2]);
    });
}

/// The number of paths was two when the sender has read it.
#[test]
fn a_closed_path_gets_no_message() {
    check_few(2, || {
        let connection = Connection::new();
        let mover = thread::spawn({
            let connection = connection.clone();
            move || connection.close()
        });
        let other = thread::spawn({
            let connection = connection.clone();
            move || {
                connection.table.add(Connection::PORT, PathCount::Two);
            }
        });
        connection.send(1, PathCount::Two);
        connection.send(2, PathCount::Two);
        mover.join().unwrap();
        other.join().unwrap();
        connection.arrive(1, &[]);
        connection.arrive(0, &[1, 2]);
    });
}

/// A message is on another path than the one before only if that has arrived.
#[test]
fn a_place_changes_its_path_when_it_is_empty() {
    check(|| {
        let connection = Connection::new();
        connection.send(1, PathCount::One);
        let receiver = thread::spawn({
            let connection = connection.clone();
            move || connection.arrive(0, &[1])
        });
        let place = connection.table.add(Connection::PORT, PathCount::Two);
        let queue = connection.lock_for(place);
        if queue.path == 1 {
            assert!(connection.lock(0).messages.is_empty());
        }
        drop(queue);
        receiver.join().unwrap();
    });
}
