// SPDX-License-Identifier: GPL-2.0

//! Which socket is bound to an address and port.

use crate::kapi::{
    net::{BoundList, IpBits, Net, Sock},
    sync::{new_spinlock_bh, Peek, SpinLockBh},
    task, time,
};
use crate::msg::{Bound, Socket, TransportId};
use crate::proto::keyed::Secret;
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
    },
};

/// Memory of the machine for each hash bucket, in bytes. The sockets of a full list take more than that, so
/// lists stay short however many there are.
const MEMORY_PER_BUCKET: u64 = 16 << 10;

/// How many buckets there may be. All are powers of two.
const FEWEST: u64 = 2048;
const MOST: u64 = 1 << 18;

/// Buckets that are allocated together.
const CHUNK: usize = 256;

/// The first port that a socket can get without asking for it; 0 and 1 have meanings of their own.
pub(crate) const FIRST_PORT: u16 = 2;

/// What identifies a bound socket in its namespace.
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

    /// The hash, by what the address adds to it.
    #[inline]
    fn hash(&self, net: Net, secret: &Secret, address: u64) -> u64 {
        // A namespace is at an address of the kernel, whose upper bits are all the same.
        let place = u64::from(self.port).rotate_left(48) ^ u64::from(self.scope);
        secret.hash(address, place ^ net.number())
    }
}

/// What an address adds to a hash, for who looks at many ports of it.
#[derive(Clone, Copy)]
pub(crate) struct HashedAddress(u64);

/// The sockets whose keys hash to the same number.
#[pin_data]
struct Bucket {
    #[pin]
    sockets: SpinLockBh<BoundList<Socket>>,
}

/// Buckets, and whether a socket was ever in one of them.
#[pin_data]
struct Chunk {
    #[pin]
    buckets: [Bucket; CHUNK],
    used: Atomic<bool>,
}

/// The socket with this key, if it is on the list.
#[inline]
fn find<'a>(sockets: &'a BoundList<Socket>, net: &Net, key: &BindKey) -> Option<&'a Sock<Socket>> {
    sockets
        .iter()
        .find(|sk| sk.bound().is_some_and(|bound| BindKey::of(bound) == *key) && sk.net == *net)
}

/// The bind table. Its size is that of the machine: it does not grow, so nobody ever waits for that.
pub(crate) struct BindTable {
    chunks: KVec<Pin<KBox<Chunk>>>,
    /// Bits of a hash that do not number the bucket.
    shift: u32,
    /// Programs choose addresses and ports, but shall not choose buckets.
    secret: Secret,
    /// The first port that is suggested. Programs can find it out from a few of them.
    seed: u64,
    /// How many ports were suggested.
    suggested: Atomic<u64>,
}

impl BindTable {
    /// An empty table for a machine with so many bytes of memory. May sleep.
    pub(crate) fn new(memory: u64) -> Result<Self> {
        let bucket =
            |_| pin_init!(Bucket { sockets <- new_spinlock_bh!(BoundList::new(), "Binds") });
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
            suggested: Atomic::new(0),
        })
    }

    /// What an address adds to the hashes of its ports.
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
        // CAST: no more bits than number a bucket.
        let number = (key.hash(net, &self.secret, address.0) >> self.shift) as usize;
        let chunk: &Chunk = self.chunks.get(number / CHUNK)?;
        Some((chunk, &chunk.buckets.get(number % CHUNK)?.sockets))
    }

    /// A port that is probably free: not one of the last few thousand, nor next to the one before.
    #[inline]
    pub(crate) fn pick_port(&self) -> u16 {
        // Steps of the golden ratio fall where most room is left.
        let step = 0x9e37_79b9_7f4a_7c15u64;
        let place = self
            .seed
            .wrapping_add(self.suggested.fetch_add(1, Relaxed).wrapping_mul(step));
        // CAST: the upper bits.
        ((place >> 48) as u16).max(FIRST_PORT)
    }

    /// Binds a socket, which is for life, to an address that `transport` serves; `address` is what
    /// that adds to the hash. Any context.
    // Not inlined it takes 50 instructions more.
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
        if !chunk.used.peek() {
            chunk.used.store(true, Relaxed);
        }
        Ok(())
    }

    /// Frees the address and port of a socket that is being closed. Any context.
    pub(crate) fn unbind(&self, sk: &Sock<Socket>, bound: &Bound) {
        let key = BindKey::of(bound);
        let found = self
            .bucket(sk.net, &key, self.address(key.addr))
            .and_then(|(_, bucket)| bucket.lock().remove(sk));
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
        let used = self.chunks.iter().filter(|chunk| chunk.used.peek());
        for bucket in used.flat_map(|chunk| chunk.buckets.iter()) {
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
    pub(crate) fn lookup(&self, net: Net, key: &BindKey) -> Option<ARef<Sock<Socket>>> {
        let bucket = self.bucket(net, key, self.address(key.addr))?.1;
        let sockets = bucket.lock();
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
    /// No socket can have the port.
    Reserved,
}
