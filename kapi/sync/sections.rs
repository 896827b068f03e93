// SPDX-License-Identifier: GPL-2.0

//! Sections: a task can wait until all operations that other tasks have begun are finished.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        CondVar,
        Mutex, //
    }, //
};

/// The numbers of the open sections. Numbers are not reused.
struct Open {
    sections: RBTree<u64, ()>,
    next: u64,
}

/// The set of open sections. A task has a section open during an operation for which others may
/// wait.
#[pin_data]
pub(crate) struct Sections {
    #[pin]
    open: Mutex<Open>,
    /// A section was closed.
    #[pin]
    closed: CondVar,
}

/// An open section. It is closed when dropped, which sleeps.
pub(crate) struct Section {
    sections: Arc<Sections>,
    number: u64,
}

impl Sections {
    /// Creates a set without open sections.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
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

    /// Opens a section.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn open(self: &Arc<Self>) -> Result<Section> {
        let place = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut open = self.open.lock();
        let number = open.next;
        open.next = number.wrapping_add(1);
        // The number is new, so the insertion replaces nothing.
        open.sections.insert(place.into_node(number, ()));
        drop(open);
        Ok(Section {
            sections: self.clone(),
            number,
        })
    }

    /// Waits until all sections that are open at the time of the call are closed.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(crate) fn synchronize(&self) {
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
