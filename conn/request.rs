// SPDX-License-Identifier: GPL-2.0

//! Connection requests of the peer. One waits for the worker at a time.

use super::{
    transport::Request,
    Connection, //
};
use crate::stats::Counter;
use kernel::{
    prelude::*,
    sync::Arc, //
};

impl Connection {
    /// Returns `true` if the worker takes a request now.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn takes_request(&self) -> bool {
        self.path.request.lock().is_none() && !self.has_ended()
    }

    /// Hands the connection request that `make` returns to the worker. Returns `false` if there is
    /// none. `make` is not called if another request waits, or the connection ends for good.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt. `make` is called with a spinlock held.
    pub(crate) fn request_with(
        self: &Arc<Self>,
        make: impl FnOnce() -> Option<KBox<dyn Request>>,
    ) -> bool {
        let mut waiting = self.path.request.lock();
        if waiting.is_some() || self.has_ended() {
            return false;
        }
        *waiting = make();
        let made = waiting.is_some();
        drop(waiting);
        if made {
            self.wake_worker();
        }
        made
    }

    /// Hands a connection request of the peer to the worker.
    ///
    /// # Errors
    ///
    /// Returns the request if another one waits, or if the connection ends for good.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn request(
        self: &Arc<Self>,
        request: KBox<dyn Request>,
    ) -> Result<(), KBox<dyn Request>> {
        let mut request = Some(request);
        self.request_with(|| request.take());
        request.map_or(Ok(()), Err)
    }

    /// Rejects the request that waits. Returns `false` if there is none.
    ///
    /// # Context
    ///
    /// Sleeps.
    pub(super) fn reject_request(&self) -> bool {
        let request = self.path.request.lock().take();
        // Dropping the request would not ensure that the answer is sent.
        request.is_some_and(|mut request| {
            request.reject(self);
            true
        })
    }

    /// Returns `true` if the peer waits for an answer to a request. The worker calls this.
    pub(super) fn has_request(&self) -> bool {
        let ended = {
            let mut waiting = self.path.request.lock();
            match &*waiting {
                None => return false,
                Some(request) if !request.has_ended() => return true,
                Some(_) => waiting.take(),
            }
        };
        // Dropping sleeps, so it happens without the lock.
        drop(ended);
        self.note_drop(Counter::IbListenClosedStale, 1);
        false
    }
}
