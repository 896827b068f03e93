// SPDX-License-Identifier: GPL-2.0

//! Receive positions of forgotten connections, by key.

use super::{
    key::ConnKey,
    table::{
        add,
        subtract,
        Bounds,
        PeerKey, //
    }, //
};
use crate::{
    proto::{
        mprds::PathCount,
        rx::Position, //
    },
    socket::TransportId, //
};
use core::net::Ipv6Addr;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};

/// Key of a position, ordered so that all of a peer are adjacent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ByPeer {
    peer: PeerKey,
    laddr: Ipv6Addr,
    tos: u8,
    transport: TransportId,
    path: u8,
}

impl ByPeer {
    fn of(key: &ConnKey) -> Self {
        Self {
            peer: PeerKey::of(key),
            laddr: key.laddr,
            tos: key.tos,
            transport: key.transport,
            path: key.path,
        }
    }
}

/// A position, and its insertion number.
struct Aged {
    position: Position,
    number: u64,
}

/// Insertion order of the positions of a peer.
type Age = (PeerKey, u64);

/// Receive positions of forgotten connections, whose peers may send messages again that already
/// arrived.
///
/// A peer may have many positions, and softirqs wait for the lock, so no function walks over them.
///
/// # Invariants
///
/// - `len` is the number of entries of `tree`.
/// - `ages` has the key of each entry.
/// - `peers` has the number of entries for each peer that has any.
pub(crate) struct Positions {
    tree: RBTree<ByPeer, Aged>,
    ages: RBTree<Age, ByPeer>,
    peers: RBTree<PeerKey, usize>,
    len: usize,
    next: u64,
    bounds: Bounds,
}

/// Preallocated memory for one position.
pub(crate) struct PositionPlace {
    entry: RBTreeNodeReservation<ByPeer, Aged>,
    age: RBTreeNodeReservation<Age, ByPeer>,
    peer: RBTreeNodeReservation<PeerKey, usize>,
}

impl PositionPlace {
    /// Allocates the memory.
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
            entry: RBTreeNodeReservation::new(GFP_KERNEL)?,
            age: RBTreeNodeReservation::new(GFP_KERNEL)?,
            peer: RBTreeNodeReservation::new(GFP_KERNEL)?,
        })
    }
}

impl Positions {
    /// Creates an empty set. The limits on connections also apply to positions.
    pub(crate) fn new(bounds: Bounds) -> Self {
        // INVARIANT: Empty.
        Self {
            tree: RBTree::new(),
            ages: RBTree::new(),
            peers: RBTree::new(),
            len: 0,
            next: 0,
            bounds: bounds.at_least_one(),
        }
    }

    /// Returns the number of positions of a peer.
    fn of_peer(&self, peer: &PeerKey) -> usize {
        self.peers.get(peer).copied().unwrap_or(0)
    }

    /// Returns the oldest position of a peer, if it has any.
    fn oldest_of(&self, peer: PeerKey) -> Option<ByPeer> {
        let cursor = self.ages.cursor_lower_bound(&(peer, 0))?;
        let ((of, _), key) = cursor.current();
        (*of == peer).then_some(*key)
    }

    /// Returns `true` if a position can be added, perhaps in place of another one of the peer.
    pub(crate) fn has_room(&self, key: &ConnKey) -> bool {
        self.len < self.bounds.all || self.of_peer(&PeerKey::of(key)) >= self.bounds.per_peer
    }

    /// Returns `true` if another path of a connection, whose first path has this key, has one.
    ///
    /// The generation of the peer is in the position of the first path. Without it a restart of the
    /// peer would be missed, and its messages on the other path would count as duplicates.
    pub(crate) fn has_others(&self, first: &ConnKey) -> bool {
        let mut others = (1..).take_while(|path| PathCount::Eight.has(*path));
        others.any(|path| {
            self.tree
                .get(&ByPeer::of(&ConnKey { path, ..*first }))
                .is_some()
        })
    }

    /// Adds a position whose key must not be in the set. At the limit of the peer its oldest
    /// position is removed.
    pub(crate) fn insert(&mut self, key: &ConnKey, position: Position, place: PositionPlace) {
        let key = ByPeer::of(key);
        if self.of_peer(&key.peer) >= self.bounds.per_peer {
            if let Some(oldest) = self.oldest_of(key.peer) {
                self.take(&oldest);
            }
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        let aged = Aged { position, number };
        // INVARIANT: One more in all. The key was not there and the number is new, so nothing is
        // replaced.
        drop(self.tree.insert(place.entry.into_node(key, aged)));
        drop(
            self.ages
                .insert(place.age.into_node((key.peer, number), key)),
        );
        add(&mut self.peers, key.peer, place.peer);
        self.len = self.len.saturating_add(1);
    }

    /// Removes and returns a position.
    pub(crate) fn remove(&mut self, key: &ConnKey) -> Option<Position> {
        self.take(&ByPeer::of(key))
    }

    fn take(&mut self, key: &ByPeer) -> Option<Position> {
        let aged = self.tree.remove(key)?;
        // INVARIANT: One less in all.
        let _: Option<ByPeer> = self.ages.remove(&(key.peer, aged.number));
        subtract(&mut self.peers, &key.peer);
        self.len = self.len.saturating_sub(1);
        Some(aged.position)
    }
}
