// SPDX-License-Identifier: GPL-2.0

//! Bind table: finds the socket that is bound to an address and port.

use super::{
    Bound,
    Socket,
    TransportId, //
};
use crate::{
    kapi::{
        net::{
            BoundList,
            IpBits,
            Net,
            Sock, //
        },
        sync::{
            new_spinlock_bh,
            ReadOnce,
            SpinLockBh, //
        },
        task,
        time, //
    },
    proto::keyed::Secret, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        }, //
    }, //
};

/// Memory of the node per hash bucket, in bytes. Sockets in a long list would need more memory than
/// that, so lists stay short.
const MEMORY_PER_BUCKET: u64 = 16 << 10;

/// Limits on the number of buckets, which is a power of two.
const FEWEST: u64 = 2048;
const MOST: u64 = 1 << 18;

/// Buckets that are allocated together.
const CHUNK: usize = 256;

/// First port that is assigned automatically. Ports 0 and 1 are special.
pub(crate) const FIRST_PORT: u16 = 2;

/// Identity of a bound socket in its namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BindKey {
    pub(crate) addr: IpBits,
    pub(crate) port: u16,
    pub(crate) scope: u32,
}

impl BindKey {
    #[inline]
    fn of(bound: &Bound) -> Self {
        Self {
            addr: IpBits::new(bound.addr),
            port: bound.port,
            scope: bound.scope,
        }
    }

    /// Returns the hash. `address` is the contribution of the address.
    #[inline]
    fn hash(&self, net: Net, secret: &Secret, address: u64) -> u64 {
        // A namespace is identified by its kernel address, whose upper bits are always the same.
        let place = u64::from(self.port).rotate_left(48) ^ u64::from(self.scope);
        secret.hash(address, place ^ net.number())
    }
}

/// Contribution of an address to a hash, for callers that check many of its ports.
#[derive(Clone, Copy)]
pub(crate) struct HashedAddress(u64);

/// Sockets whose keys hash to the same number.
#[pin_data]
struct Bucket {
    #[pin]
    sockets: SpinLockBh<BoundList<Socket>>,
}

/// Buckets, and a flag that is set once one of them has had a socket.
#[pin_data]
struct Chunk {
    #[pin]
    buckets: [Bucket; CHUNK],
    used: Atomic<bool>,
}

/// Returns the socket with this key, if it is on the list.
#[inline]
fn find<'a>(sockets: &'a BoundList<Socket>, net: &Net, key: &BindKey) -> Option<&'a Sock<Socket>> {
    sockets
        .iter()
        .find(|sk| sk.bound().is_some_and(|bound| BindKey::of(bound) == *key) && sk.net == *net)
}

/// Bind table. Its size depends on the memory of the node. It does not grow, so no caller waits for
/// that.
pub(crate) struct BindTable {
    chunks: KVec<Pin<KBox<Chunk>>>,
    /// Number of bits of a hash that do not select the bucket.
    shift: u32,
    /// Programs choose addresses and ports. The secret prevents them from choosing buckets.
    secret: Secret,
    /// Number that determines the first suggested port. A program can derive it from a few
    /// suggestions.
    seed: u64,
    /// Number of ports that were suggested.
    picked: Atomic<u64>,
}

impl BindTable {
    /// Creates an empty table for a node with `memory` bytes.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(memory: u64) -> Result<Self> {
        let bucket =
            |_| pin_init!(Bucket { sockets <- new_spinlock_bh!(BoundList::new(), "BindTable") });
        let count = (memory / MEMORY_PER_BUCKET)
            .clamp(FEWEST, MOST)
            .next_power_of_two();
        let mut chunks = KVec::new();
        for _ in 0..count / CHUNK as u64 {
            let chunk = pin_init!(Chunk {
                buckets <- pin_init::pin_init_array_from_fn(bucket),
                used: Atomic::new(false),
            });
            chunks.push(KBox::pin_init(chunk, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(Self {
            chunks,
            shift: u64::BITS.saturating_sub(count.ilog2()),
            secret: Secret::new(time::random_u32),
            seed: u64::from(time::random_u32()) << 32 | u64::from(time::random_u32()),
            picked: Atomic::new(0),
        })
    }

    /// Returns the contribution of an address to hashes.
    #[inline]
    pub(crate) fn address(&self, addr: IpBits) -> HashedAddress {
        HashedAddress(self.secret.address(addr.halves()))
    }

    #[inline]
    fn bucket(
        &self,
        net: Net,
        key: &BindKey,
        address: HashedAddress,
    ) -> Option<(&Chunk, &SpinLockBh<BoundList<Socket>>)> {
        // CAST: only the bits that select a bucket are left.
        let number = (key.hash(net, &self.secret, address.0) >> self.shift) as usize;
        let chunk: &Chunk = self.chunks.get(number / CHUNK)?;
        Some((chunk, &chunk.buckets.get(number % CHUNK)?.sockets))
    }

    /// Returns a port that is probably free: not one of the last few thousand suggestions, and not
    /// adjacent to the previous one.
    #[inline]
    pub(crate) fn pick_port(&self) -> u16 {
        // With steps of the golden ratio, each suggestion falls into one of the largest gaps.
        let step = 0x9e37_79b9_7f4a_7c15u64;
        let place = self
            .seed
            .wrapping_add(self.picked.fetch_add(1, Relaxed).wrapping_mul(step));
        // CAST: the upper bits.
        ((place >> 48) as u16).max(FIRST_PORT)
    }

    /// Binds a socket, for its lifetime, to an address that `transport` serves. `address` is the
    /// contribution of that address to the hash.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    // Without inlining this takes 50 more instructions.
    #[inline(always)]
    pub(crate) fn bind(
        &self,
        sk: &Sock<Socket>,
        key: BindKey,
        address: HashedAddress,
        transport: TransportId,
    ) -> Result<(), BindError> {
        let found = self.bucket(sk.net, &key, address);
        let (chunk, bucket) = found.ok_or(BindError::InUse)?;
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
        if !chunk.used.read_once() {
            chunk.used.store(true, Relaxed);
        }
        Ok(())
    }

    /// Frees the address and port of a socket that is being closed.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn unbind(&self, sk: &Sock<Socket>, bound: &Bound) {
        let key = BindKey::of(bound);
        let found = self
            .bucket(sk.net, &key, self.address(key.addr))
            .and_then(|(_, bucket)| bucket.lock().remove(sk));
        // Without the lock, because this may drop the last reference to the socket.
        drop(found);
    }

    /// Calls `each`, without a lock, for the sockets of a namespace, until it fails. Sockets that
    /// are bound or closed meanwhile may be missed.
    ///
    /// # Errors
    ///
    /// - `EINTR` if the process is being killed.
    /// - `ENOMEM`
    /// - Any error of `each`.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn try_for_each(
        &self,
        net: Net,
        mut each: impl FnMut(&Sock<Socket>) -> Result,
    ) -> Result {
        let mut batch = KVVec::new();
        let used = self.chunks.iter().filter(|chunk| chunk.used.read_once());
        for bucket in used.flat_map(|chunk| chunk.buckets.iter()) {
            loop {
                let sockets = bucket.sockets.lock();
                // This walks the whole list with the lock held, as lookups do; lists are short.
                let in_namespace = || sockets.iter().filter(|sk| sk.net == net);
                let count = in_namespace().count();
                if count <= batch.capacity() {
                    for sk in in_namespace() {
                        // The capacity was checked above.
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

    /// Returns the socket that is bound to an address and port.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn lookup(&self, net: Net, key: &BindKey) -> Option<ARef<Sock<Socket>>> {
        let bucket = self.bucket(net, key, self.address(key.addr))?.1;
        let sockets = bucket.lock();
        find(&sockets, &net, key).map(Sock::hold)
    }
}

/// Reason why a socket could not be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BindError {
    /// The address and port belong to another socket.
    InUse,
    /// The socket is already bound.
    Bound,
    /// No socket can be bound to the port.
    Reserved,
}
