// SPDX-License-Identifier: GPL-2.0

//! Models of `socket/shared_room.rs`: senders that share a room, and acknowledgements that return
//! it.

use crate::{check, check_few, wait::WaitQueue};
use loom::{sync::Arc, thread};
use shared_room::SharedRoom;

#[path = "../../../socket/shared_room.rs"]
mod shared_room;

const LIMIT: usize = 16;

/// A share, as `socket/shares.rs` and `af_rds/sendmsg.rs` use it.
struct Share {
    room: SharedRoom,
    wait: WaitQueue,
}

impl Share {
    /// Creates a share with `taken` bytes charged.
    fn new(taken: usize) -> Arc<Self> {
        let share = Self {
            room: SharedRoom::new(),
            wait: WaitQueue::new(),
        };
        assert!(taken == 0 || share.room.charge(taken, LIMIT));
        Arc::new(share)
    }

    /// Charges some bytes, and waits for room if needed.
    fn send(&self, bytes: usize) {
        while !self.room.charge(bytes, LIMIT) {
            self.wait.wait(|| self.room.has_room(LIMIT));
        }
    }

    fn acknowledge(&self, bytes: usize) {
        if self.room.credit(bytes, || LIMIT) {
            self.wait.wake_all();
        }
    }
}

#[test]
fn a_sender_that_waits_for_room_is_woken() {
    check_few(2, || {
        let share = Share::new(LIMIT);
        let senders = [(); 2].map(|()| {
            let share = share.clone();
            thread::spawn(move || {
                share.send(LIMIT);
                share.acknowledge(LIMIT);
            })
        });
        share.acknowledge(LIMIT);
        for sender in senders {
            sender.join().unwrap();
        }
        assert!(share.room.has_room(1));
    });
}

/// The first return frees too little and wakes no sender; the second one does.
#[test]
fn two_give_back() {
    check(|| {
        let share = Share::new(LIMIT);
        let others = [1, 2].map(|bytes| {
            let share = share.clone();
            thread::spawn(move || share.acknowledge(bytes))
        });
        share.send(1);
        for other in others {
            other.join().unwrap();
        }
    });
}

/// A room that was full admits nothing until an eighth of it is free.
#[test]
fn there_is_room_again_when_an_eighth_is_free() {
    check(|| {
        let share = Share::new(LIMIT - 1);
        assert!(share.room.has_room(LIMIT) && share.room.charge(4, LIMIT));
        assert!(!share.room.charge(1, LIMIT));
        // 14 are charged.
        assert!(!share.room.credit(5, || LIMIT) && !share.room.charge(1, LIMIT));
        assert!(share.room.credit(1, || LIMIT));
        // No charge has found the room full since.
        assert!(share.room.charge(2, LIMIT) && share.room.charge(1, LIMIT));
        assert!(!share.room.charge(1, LIMIT));
    });
}
