// SPDX-License-Identifier: GPL-2.0

//! Which socket is bound to an address and port.

use crate::kapi::{
    net::{Net, Sock},
    sync::{new_spinlock_bh, Fifo, Linked, SpinLockBh},
};
use crate::msg::Socket;
use core::net::Ipv6Addr;
use kernel::{prelude::*, sync::aref::ARef};

/// Number of hash buckets; a power of two.
const BUCKETS: usize = 2048;

/// What identifies a bound socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) net: Net,
    pub(crate) addr: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) scope: u32,
}

impl Key {
    /// Multiplicative hashing of the words that differ most: port and the end of the address.
    fn bucket(&self) -> usize {
        let bits = self.addr.to_bits();
        // CAST: the halves of the address.
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        let mixed = (low ^ high.rotate_left(29) ^ u64::from(self.port).rotate_left(40))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // CAST: 32 bits fit.
        (mixed >> 32) as usize & (BUCKETS - 1)
    }
}

struct Entry {
    next: Option<KBox<Entry>>,
    key: Key,
    sk: ARef<Sock<Socket>>,
}

impl Linked for Entry {
    fn next(&mut self) -> &mut Option<KBox<Self>> {
        &mut self.next
    }
}

/// The sockets whose keys hash to the same number.
#[pin_data]
struct Bucket {
    #[pin]
    entries: SpinLockBh<Fifo<Entry>>,
}

/// The bind table.
pub(crate) struct Binds {
    buckets: Pin<KBox<[Bucket]>>,
}

impl Binds {
    /// An empty table. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            buckets: KBox::pin_slice::<_, _, Error>(
                |_| try_pin_init!(Bucket { entries <- new_spinlock_bh!(Fifo::new(), "Binds") }),
                BUCKETS,
                GFP_KERNEL,
            )?,
        })
    }

    fn bucket(&self, key: &Key) -> Option<&SpinLockBh<Fifo<Entry>>> {
        Some(&self.buckets.get(key.bucket())?.entries)
    }

    /// Binds a socket. Fails with EADDRINUSE if another one has the address and port already.
    ///
    /// May sleep.
    pub(crate) fn insert(&self, key: Key, sk: &Sock<Socket>) -> Result<(), InsertError> {
        let entry = KBox::new(
            Entry {
                next: None,
                key,
                sk: sk.hold(),
            },
            GFP_KERNEL,
        )
        .map_err(|_| InsertError::NoMemory)?;
        let bucket = self.bucket(&key).ok_or(InsertError::NoMemory)?;
        let mut entries = bucket.lock();
        let mut taken = false;
        entries.for_each(|other| taken |= other.key == key);
        if taken {
            // The entry is dropped after the lock: a socket's last reference must not go under it.
            drop(entries);
            drop(entry);
            return Err(InsertError::InUse);
        }
        entries.push_back(entry);
        Ok(())
    }

    /// Ends a binding. May sleep.
    pub(crate) fn remove(&self, key: &Key) {
        let Some(bucket) = self.bucket(key) else {
            return;
        };
        let mut out = Fifo::new();
        bucket
            .lock()
            .extract(|entry| entry.key == *key, &mut out);
        // `out` goes here, after the lock.
    }

    /// The socket that is bound to this address and port. Any context.
    pub(crate) fn lookup(&self, key: &Key) -> Option<ARef<Sock<Socket>>> {
        let mut found = None;
        self.bucket(key)?.lock().for_each(|entry| {
            if entry.key == *key {
                found = Some(entry.sk.clone());
            }
        });
        found
    }
}

/// Why a socket could not be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InsertError {
    /// The address and port belong to another socket.
    InUse,
    NoMemory,
}
