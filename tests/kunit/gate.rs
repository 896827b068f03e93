// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of gates.

use kernel::prelude::*;

#[kunit_tests(rds_gate)]
mod suite {
    use crate::kapi::sync::{
        Gate,
        OwnedQueue, //
    };
    use kernel::{
        prelude::*,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        },
        time::{
            delay::fsleep,
            Delta, //
        },
        workqueue::{
            Work,
            WorkItem, //
        }, //
    };

    /// A gate that a work item closes.
    #[pin_data]
    struct Closer {
        #[pin]
        gate: Gate,
        is_closed: Atomic<bool>,
        #[pin]
        work: Work<Closer, 0>,
    }

    kernel::impl_has_work! {
        impl HasWork<Self, 0> for Closer { self.work }
    }

    impl WorkItem<0> for Closer {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            this.gate.close();
            this.is_closed.store(true, Relaxed);
        }
    }

    impl Closer {
        fn new() -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Self {
                    gate <- Gate::new(),
                    is_closed: Atomic::new(false),
                    work <- kernel::new_work!("rds_kunit_closer"),
                }),
                GFP_KERNEL,
            )
        }
    }

    #[test]
    fn an_empty_gate_closes_at_once() -> Result {
        let closer = Closer::new()?;
        assert!(closer.gate.enter());
        closer.gate.leave();
        closer.gate.close();
        assert!(!closer.gate.enter());
        Ok(())
    }

    #[test]
    fn the_last_user_closes_the_gate() -> Result {
        let closer = Closer::new()?;
        let queue = OwnedQueue::new(c"rds_kunit")?;
        let entered = closer.gate.enter();
        queue.enqueue::<_, 0>(closer.clone());
        // Refused once the work has begun to close the gate.
        while closer.gate.enter() {
            closer.gate.leave();
            fsleep(Delta::from_millis(1));
        }
        // A user may let another one in, for which the gate waits, too.
        closer.gate.join();
        closer.gate.leave();
        // If one of them closes the gate too early, the work ends meanwhile.
        fsleep(Delta::from_millis(20));
        let while_open = closer.is_closed.load(Relaxed);
        closer.gate.leave();
        queue.flush();
        assert!(entered && !while_open && closer.is_closed.load(Relaxed));
        Ok(())
    }
}
