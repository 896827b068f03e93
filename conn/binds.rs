// SPDX-License-Identifier: GPL-2.0

//! Which socket is bound to an address and port.

use crate::kapi::{
    net::{BoundList, IpBits, Net, Sock},
    sync::{new_spinlock_bh, SpinLockBh},
    task, time,
};
use crate::msg::{Bound, Socket, TransportId};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
    },
};

/// Number of hash buckets; a power of two.
const BUCKETS: usize = 2048;

/// The first port that a socket can get without asking for it; 0 and 1 have meanings of their own.
pub(crate) const FIRST_PORT: u16 = 2;

/// What identifies a bound socket in its namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) addr: IpBits,
    pub(crate) port: u16,
    pub(crate) scope: u32,
}

impl Key {
    #[inline]
    fn of(bound: &Bound) -> Self {
        Self {
            addr: IpBits::new(bound.addr),
            port: bound.port,
            scope: bound.scope,
        }
    }

    /// The number of the bucket. Multiplicative hashing: the upper bits depend on all bits below them.
    #[inline]
    fn hash(&self, seed: u64) -> usize {
        let (high, low) = self.addr.halves();
        let mixed = (low ^ high.rotate_left(29) ^ u64::from(self.port).rotate_left(20) ^ seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // CAST: as many bits as number a bucket.
        (mixed >> (u64::BITS - BUCKETS.ilog2())) as usize
    }
}

/// The sockets whose keys hash to the same number.
#[pin_data]
struct Bucket {
    #[pin]
    sockets: SpinLockBh<BoundList<Socket>>,
}

/// The socket with this key, if it is on the list.
#[inline]
fn find<'a>(sockets: &'a BoundList<Socket>, net: &Net, key: &Key) -> Option<&'a Sock<Socket>> {
    sockets
        .iter()
        .find(|sk| sk.bound().is_some_and(|bound| Key::of(bound) == *key) && sk.net == *net)
}

/// The bind table.
pub(crate) struct Binds {
    buckets: Pin<KBox<[Bucket; BUCKETS]>>,
    /// Programs choose addresses and ports, but shall not choose buckets.
    seed: u64,
    /// How many ports were suggested.
    suggested: Atomic<u64>,
}

impl Binds {
    /// An empty table. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let bucket =
            |_| pin_init!(Bucket { sockets <- new_spinlock_bh!(BoundList::new(), "Binds") });
        Ok(Self {
            buckets: KBox::pin_init(pin_init::pin_init_array_from_fn(bucket), GFP_KERNEL)?,
            seed: u64::from(time::random_u32()) << 32 | u64::from(time::random_u32()),
            suggested: Atomic::new(0),
        })
    }

    #[inline]
    fn bucket(&self, key: &Key) -> Option<&SpinLockBh<BoundList<Socket>>> {
        Some(&self.buckets.get(key.hash(self.seed))?.sockets)
    }

    /// A port that is probably free: not one of the last few thousand, nor next to the one before.
    #[inline]
    pub(crate) fn suggest(&self) -> u16 {
        // Steps of the golden ratio fall where most room is left.
        let step = 0x9e37_79b9_7f4a_7c15u64;
        let place = self
            .seed
            .wrapping_add(self.suggested.fetch_add(1, Relaxed).wrapping_mul(step));
        // CAST: the upper bits.
        ((place >> 48) as u16).max(FIRST_PORT)
    }

    /// Binds a socket, which is for life, to an address that `transport` serves. Any context.
    #[inline]
    pub(crate) fn bind(
        &self,
        sk: &Sock<Socket>,
        key: Key,
        transport: TransportId,
    ) -> Result<(), BindError> {
        let bucket = self.bucket(&key).ok_or(BindError::InUse)?;
        let mut sockets = bucket.lock();
        if find(&sockets, &sk.net, &key).is_some() {
            return Err(BindError::InUse);
        }
        let bound = Bound {
            addr: key.addr.addr(),
            port: key.port,
            scope: key.scope,
            transport,
        };
        if !sockets.bind(sk, bound) {
            return Err(BindError::Bound);
        }
        Ok(())
    }

    /// Frees the address and port of a socket that is being closed. Any context.
    pub(crate) fn unbind(&self, sk: &Sock<Socket>, bound: &Bound) {
        let key = Key::of(bound);
        let found = self
            .bucket(&key)
            .and_then(|bucket| bucket.lock().remove(sk));
        // After the lock: a socket's last reference must not go under it.
        drop(found);
    }

    /// Calls `each`, without a lock, for all sockets of a namespace that are bound all the time, until it
    /// fails. May sleep. Fails with ENOMEM, too, and with EINTR if the process is to die.
    pub(crate) fn try_for_each(
        &self,
        net: Net,
        mut each: impl FnMut(&Sock<Socket>) -> Result,
    ) -> Result {
        let mut batch = KVVec::new();
        for bucket in self.buckets.iter() {
            loop {
                let sockets = bucket.sockets.lock();
                // Like all who look for a socket; there are few.
                let ours = || sockets.iter().filter(|sk| sk.net == net);
                let count = ours().count();
                if count <= batch.capacity() {
                    for sk in ours() {
                        // There is room.
                        let _ = batch.push_within_capacity(sk.hold());
                    }
                    break;
                }
                drop(sockets);
                batch.reserve(count, GFP_KERNEL)?;
            }
            batch.drain_all().try_for_each(|sk| each(&sk))?;
            task::check_killed()?;
        }
        Ok(())
    }

    /// The socket that is bound to this address and port. Any context.
    pub(crate) fn lookup(&self, net: Net, key: &Key) -> Option<ARef<Sock<Socket>>> {
        let sockets = self.bucket(key)?.lock();
        find(&sockets, &net, key).map(Sock::hold)
    }
}

/// Why a socket could not be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BindError {
    /// The address and port belong to another socket.
    InUse,
    /// The socket is bound already.
    Bound,
}
