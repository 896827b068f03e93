// SPDX-License-Identifier: GPL-2.0

//! Waiting for what others have begun.

use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
    sync::{Arc, CondVar, Mutex},
};

/// The sections that are open, by number. Numbers are not used again.
struct Open {
    sections: RBTree<u64, ()>,
    next: u64,
}

/// What tasks do that somebody may have to wait for: each has a section open while it does it.
#[pin_data]
pub(crate) struct Sections {
    #[pin]
    open: Mutex<Open>,
    /// One was closed.
    #[pin]
    closed: CondVar,
}

/// A section that is open. Closes when it is dropped, which sleeps.
pub(crate) struct Section {
    sections: Arc<Sections>,
    number: u64,
}

impl Sections {
    /// May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let open = Open {
            sections: RBTree::new(),
            next: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                open <- new_mutex!(open, "Sections::open"),
                closed <- new_condvar!("Sections::closed"),
            }),
            GFP_KERNEL,
        )
    }

    /// Opens a section. Fails with ENOMEM. May sleep.
    pub(crate) fn open(self: &Arc<Self>) -> Result<Section> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut open = self.open.lock();
        let number = open.next;
        open.next = number.wrapping_add(1);
        // The number is new.
        open.sections.insert(place.into_node(number, ()));
        drop(open);
        Ok(Section {
            sections: self.clone(),
            number,
        })
    }

    /// Waits until all sections that are open now are closed. Sleeps.
    pub(crate) fn settle(&self) {
        let mut open = self.open.lock();
        let end = open.next;
        while open.sections.keys().next().is_some_and(|it| *it < end) {
            self.closed.wait(&mut open);
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let mut open = self.sections.open.lock();
        let closed = open.sections.remove_node(&self.number);
        drop(open);
        drop(closed);
        self.sections.closed.notify_all();
    }
}
