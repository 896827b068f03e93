// SPDX-License-Identifier: GPL-2.0

//! Congestion maps of this node's addresses: one bit for each full port.

use crate::kapi::{
    net::Net,
    sync::{new_spinlock_bh, SpinLockBh},
};
use crate::proto::cong_bits;
use core::net::Ipv6Addr;
use kernel::prelude::*;

type Bits = [u64; cong_bits::WORDS];

/// The map of one address, allocated when one of its ports is congested for the first time.
struct Map {
    key: MapKey,
    bits: KBox<Bits>,
}

/// A local address. Link-local addresses differ by their scope.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapKey {
    pub(crate) net: Net,
    pub(crate) addr: Ipv6Addr,
    pub(crate) scope: u32,
}

/// The maps of all local addresses.
pub(crate) struct Registry {
    maps: Pin<KBox<SpinLockBh<KVec<Map>>>>,
}

impl Registry {
    /// Creates a registry without maps.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            maps: KBox::pin_init(new_spinlock_bh!(KVec::new(), "Registry::maps"), GFP_KERNEL)?,
        })
    }

    /// Marks a port as full or not full. Returns `true` if that changes its state.
    ///
    /// # Errors
    ///
    /// - `ENOMEM` if there is no memory for the map of an address.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn mark(&self, key: MapKey, port: u16, full: bool) -> Result<bool> {
        let flip = |map: &mut Map| {
            if full {
                cong_bits::set(&mut map.bits, port)
            } else {
                cong_bits::clear(&mut map.bits, port)
            }
        };
        if let Some(map) = find(&mut self.maps.lock(), key) {
            return Ok(flip(map));
        }
        if !full {
            return Ok(false);
        }
        let mut fresh = KVec::with_capacity(1, GFP_ATOMIC)?;
        let bits = KBox::new([0; cong_bits::WORDS], GFP_ATOMIC)?;
        fresh.push(Map { key, bits }, GFP_ATOMIC)?;
        let mut maps = self.maps.lock();
        if find(&mut maps, key).is_none() {
            while let Some(map) = fresh.pop() {
                maps.push(map, GFP_ATOMIC)?;
            }
        }
        let changed = find(&mut maps, key).is_some_and(flip);
        drop(maps);
        Ok(changed)
    }

    /// Copies a part of an address's map in wire format (little-endian words), from byte `offset`
    /// on. Whole words only.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn copy_fragment(&self, key: MapKey, offset: u32, out: &mut [u8]) {
        let mut maps = self.maps.lock();
        match find(&mut maps, key) {
            Some(map) => {
                let words = map.bits.iter().skip(offset as usize / 8);
                for (to, word) in out.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
            }
            None => out.fill(0),
        }
    }
}

fn find(maps: &mut KVec<Map>, key: MapKey) -> Option<&mut Map> {
    maps.iter_mut().find(|map| map.key == key)
}
