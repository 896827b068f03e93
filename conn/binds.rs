// SPDX-License-Identifier: GPL-2.0

//! Which socket is bound to an address and port.

use crate::kapi::{
    net::{Net, Sock},
    sync::{new_spinlock_bh, Fifo, Item, SpinLockBh},
    time,
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
    /// Multiplicative hashing: the upper bits depend on all bits below them.
    fn bucket(&self, seed: u64) -> usize {
        let bits = self.addr.to_bits();
        // CAST: the halves of the address.
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        let mixed = (low ^ high.rotate_left(29) ^ u64::from(self.port).rotate_left(20) ^ seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // CAST: as many bits as number a bucket.
        (mixed >> (u64::BITS - BUCKETS.ilog2())) as usize
    }
}

struct Entry {
    key: Key,
    sk: ARef<Sock<Socket>>,
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
    /// Programs choose addresses and ports, but shall not choose buckets.
    seed: u64,
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
            seed: u64::from(time::random_u32()) << 32 | u64::from(time::random_u32()),
        })
    }

    fn bucket(&self, key: &Key) -> Option<&SpinLockBh<Fifo<Entry>>> {
        Some(&self.buckets.get(key.bucket(self.seed))?.entries)
    }

    /// Binds a socket. Fails with EADDRINUSE if another one has the address and port already.
    ///
    /// May sleep.
    pub(crate) fn insert(&self, key: Key, sk: &Sock<Socket>) -> Result<(), InsertError> {
        let entry = Item::new(Entry { key, sk: sk.hold() }, GFP_KERNEL)
            .map_err(|_| InsertError::NoMemory)?;
        let bucket = self.bucket(&key).ok_or(InsertError::NoMemory)?;
        let mut entries = bucket.lock();
        if entries.iter().any(|other| other.key == key) {
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
        bucket.lock().extract(|entry| entry.key == *key, &mut out);
        // `out` goes here, after the lock.
    }

    /// The socket that is bound to this address and port. Any context.
    pub(crate) fn lookup(&self, key: &Key) -> Option<ARef<Sock<Socket>>> {
        let entries = self.bucket(key)?.lock();
        let found = entries.iter().find(|entry| entry.key == *key)?;
        Some(found.sk.clone())
    }
}

/// Why a socket could not be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InsertError {
    /// The address and port belong to another socket.
    InUse,
    NoMemory,
}
