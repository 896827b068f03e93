// SPDX-License-Identifier: GPL-2.0

//! Table of a node's connections by key, and the limits on their number.

use super::{
    key::{
        ConnKey,
        ShownAddr, //
    },
    table_user::TableUser, //
};
use crate::{
    kapi::{
        net::Net,
        task::UserId, //
    },
    proto::{
        attempts::{
            self,
            AttemptKind,
            AttemptPlace,
            Attempts, //
        }, //
    }, //
};
use core::net::Ipv6Addr;
use kernel::{
    fmt,
    prelude::*,
    rbtree::{
        CursorMut,
        RBTree,
        RBTreeNodeReservation, //
    }, //
};

/// Limits on the number of connections of a node.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Total number.
    pub(crate) all: usize,
    /// Number with one peer address, over all local addresses, types of service and transports.
    pub(crate) per_peer: usize,
}

impl Bounds {
    /// Returns the limits, each raised to 1 if it is less.
    pub(super) fn at_least_one(self) -> Self {
        Self {
            all: self.all.max(1),
            per_peer: self.per_peer.max(1),
        }
    }
}

/// Number of connections to peers that have never answered which a user may always have, within the
/// total limit.
const FEW: usize = 16;

/// Number of connections that peers without a message requested, from which on unneeded ones make
/// room.
const MANY_STRANGERS: usize = 256;

/// Returns `true` if at most a sixteenth of `bound` is left, so unneeded entries should make room.
/// One user alone leaves an eighth, see [`ConnTable::has_room`]. So he takes no entries of others.
fn is_near(count: usize, bound: usize) -> bool {
    // Rounded up, so that a small bound is near, too, before it is reached.
    let margin = bound.div_ceil(16).min(bound / 8);
    count >= bound.saturating_sub(margin)
}

/// Returns the number of connections that a user may have while there is room for `left`.
fn share(left: usize) -> usize {
    left.saturating_mul(7).max(FEW)
}

/// The limit that does not allow another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All(usize),
    /// Number of connections of all network namespaces but the initial one.
    Others(usize),
    Peer(Ipv6Addr, usize),
    /// Number of connections of one user's programs to peers that have never answered. All peers
    /// over TCP count as one user.
    Unanswered(usize),
    /// Number of connections of one user's programs.
    User(usize),
    /// Number of connections of one user's programs with one peer.
    UserWithPeer(Ipv6Addr, usize),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(bound) => f.write_fmt(fmt!(
                "this node has {} connections, raise max_conns to allow more",
                bound
            )),
            Self::Others(bound) => f.write_fmt(fmt!(
                "there are {} connections outside of the initial network namespace, raise max_conns to allow more",
                bound
            )),
            Self::Peer(addr, bound) => f.write_fmt(fmt!(
                "there are {} connections with {}, raise max_conns_per_peer to allow more",
                bound,
                ShownAddr(*addr)
            )),
            Self::Unanswered(count) => f.write_fmt(fmt!(
                "its user has {} connections to peers that have never answered, and may have no more now",
                count
            )),
            Self::User(count) => f.write_fmt(fmt!(
                "its user has {} connections and leaves the rest to others, raise max_conns to allow more",
                count
            )),
            Self::UserWithPeer(addr, count) => f.write_fmt(fmt!(
                "its user has {} connections with {} and leaves the rest to others, \
                 raise max_conns_per_peer to allow more",
                count,
                ShownAddr(*addr)
            )),
        }
    }
}

/// A peer address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PeerKey {
    net: Net,
    faddr: Ipv6Addr,
    scope: u32,
}

impl PeerKey {
    pub(super) fn of(key: &ConnKey) -> Self {
        Self {
            net: key.net,
            faddr: key.faddr,
            scope: key.scope,
        }
    }
}

/// Preallocated memory for one entry.
pub(crate) struct TableSlot<V, U: TableUser = UserId> {
    entry: RBTreeNodeReservation<ConnKey, V>,
    peer: RBTreeNodeReservation<PeerKey, usize>,
    user: RBTreeNodeReservation<U, UserCounts>,
    with_peer: RBTreeNodeReservation<(U, PeerKey), usize>,
}

/// Connections whose attempts are limited together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptGroup<U = UserId> {
    /// Those of a user's programs to peers that have never answered.
    User(U),
    /// Those that only their peer may need, and whose peer has answered before.
    Peers,
    /// Those that only their peer may need, and whose peer has not answered. Anybody can make them.
    Strangers,
}

/// Attempts in progress that only peers may need, and connections that wait for one.
#[derive(Clone, Copy, Default)]
struct ForPeers {
    attempts: Attempts,
    waiting: usize,
}

/// Numbers of a user's connections, of those whose peer has never answered, and of attempts to
/// connect the latter that are in progress.
#[derive(Clone, Copy, Default)]
struct UserCounts {
    all: usize,
    unanswered: usize,
    attempts: Attempts,
}

impl UserCounts {
    fn is_zero(self) -> bool {
        self.all == 0 && self.unanswered == 0 && self.attempts.is_empty()
    }
}

impl<V, U: TableUser> TableSlot<V, U> {
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
            peer: RBTreeNodeReservation::new(GFP_KERNEL)?,
            user: RBTreeNodeReservation::new(GFP_KERNEL)?,
            with_peer: RBTreeNodeReservation::new(GFP_KERNEL)?,
        })
    }
}

/// Adds 1 to the count of `key`.
pub(super) fn add<K: Ord>(
    counts: &mut RBTree<K, usize>,
    key: K,
    place: RBTreeNodeReservation<K, usize>,
) {
    match counts.get_mut(&key) {
        Some(count) => *count = count.saturating_add(1),
        None => drop(counts.insert(place.into_node(key, 1))),
    }
}

/// Subtracts 1 from the count of `key`, and removes a count of 0.
pub(super) fn subtract<K: Ord>(counts: &mut RBTree<K, usize>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count = count.saturating_sub(1),
        _ => drop(counts.remove(key)),
    }
}

/// The connections of a node.
///
/// # Invariants
///
/// - `len` is the number of entries of `tree`.
/// - `peers` has the number of entries for each peer address that has any.
/// - `users` has three numbers for each user, if not all are 0. They are the entries added and not
///   removed, those whose peer has not answered, and the attempts begun and not ended.
/// - `with_peers` has the number of entries added and not removed for each user and peer address,
///   if it is not 0 and [`TableUser::has_share_of_peers`].
/// - `strangers` has these numbers for all peers as a [`TableUser`], without attempts.
pub(crate) struct ConnTable<V, U: TableUser = UserId> {
    tree: RBTree<ConnKey, V>,
    peers: RBTree<PeerKey, usize>,
    users: RBTree<U, UserCounts>,
    with_peers: RBTree<(U, PeerKey), usize>,
    strangers: UserCounts,
    /// Attempts of [`AttemptGroup::Peers`] and [`AttemptGroup::Strangers`].
    for_peers: ForPeers,
    for_strangers: ForPeers,
    len: usize,
    bounds: Bounds,
}

impl<V, U: TableUser> ConnTable<V, U> {
    /// Creates an empty table. Limits below 1 count as 1.
    pub(crate) fn new(bounds: Bounds) -> Self {
        // INVARIANT: Empty.
        Self {
            tree: RBTree::new(),
            peers: RBTree::new(),
            users: RBTree::new(),
            with_peers: RBTree::new(),
            strangers: UserCounts::default(),
            for_peers: ForPeers::default(),
            for_strangers: ForPeers::default(),
            len: 0,
            bounds: bounds.at_least_one(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: &ConnKey) -> Option<&V> {
        self.tree.get(key)
    }

    fn with_peer(&self, key: &ConnKey) -> usize {
        self.peers.get(&PeerKey::of(key)).copied().unwrap_or(0)
    }

    fn counts_of(&self, user: U) -> Option<&UserCounts> {
        match user.is_peers() {
            true => Some(&self.strangers),
            false => self.users.get(&user),
        }
    }

    fn counts_of_mut(&mut self, user: U) -> Option<&mut UserCounts> {
        match user.is_peers() {
            true => Some(&mut self.strangers),
            false => self.users.get_mut(&user),
        }
    }

    /// Checks that another connection with this key may be added, for a program of `user` if there
    /// is one.
    ///
    /// All peers that request connections over TCP count as one user: anybody who can connect to
    /// this node can make them.
    ///
    /// A user may have as many connections to peers that have never answered as there is room left,
    /// and [`FEW`] in any case. So one user alone gets half of the room, and the next one half of
    /// the rest. With those to peers that have answered a user may have seven times as many as
    /// there is room left. So he leaves an eighth to others, and as much of those with one peer.
    pub(crate) fn has_room(&self, key: &ConnKey, user: Option<U>) -> Result<(), Full> {
        if self.len >= self.bounds.all {
            return Err(Full::All(self.bounds.all));
        }
        let with_peer = self.with_peer(key);
        if with_peer >= self.bounds.per_peer {
            return Err(Full::Peer(key.faddr, self.bounds.per_peer));
        }
        let of_user = user.and_then(|user| self.with_peers.get(&(user, PeerKey::of(key))));
        let left = self.bounds.per_peer.saturating_sub(with_peer);
        match of_user {
            Some(count) if *count >= share(left) => {
                return Err(Full::UserWithPeer(key.faddr, *count));
            }
            _ => {}
        }
        let Some(counts) = user.and_then(|user| self.counts_of(user)) else {
            return Ok(());
        };
        let left = self.bounds.all.saturating_sub(self.len);
        if counts.unanswered >= left.max(FEW) {
            return Err(Full::Unanswered(counts.unanswered));
        }
        if counts.all >= share(left) {
            return Err(Full::User(counts.all));
        }
        Ok(())
    }

    /// Returns `true` if a limit that counts the connection of this key is nearly reached, or the
    /// share of `user`, who needed it first.
    pub(crate) fn is_near_limit(&self, key: &ConnKey, user: Option<U>) -> bool {
        let with_peer = self.with_peer(key);
        if is_near(self.len, self.bounds.all) || is_near(with_peer, self.bounds.per_peer) {
            return true;
        }
        let Some(user) = user else {
            return false;
        };
        let of_user = self.with_peers.get(&(user, PeerKey::of(key)));
        let left = self.bounds.per_peer.saturating_sub(with_peer);
        let left_in_all = self.bounds.all.saturating_sub(self.len);
        of_user.is_some_and(|count| is_near(*count, share(left)))
            || self
                .counts_of(user)
                .is_some_and(|counts| is_near(counts.all, share(left_in_all)))
    }

    /// Adds an entry, unless a limit is reached. The key must not be in the table.
    pub(crate) fn insert(
        &mut self,
        key: ConnKey,
        value: V,
        user: Option<U>,
        place: TableSlot<V, U>,
    ) -> Result<(), Full> {
        self.has_room(&key, user)?;
        // INVARIANT: One more in all. The key was not there, so nothing is replaced.
        add(&mut self.peers, PeerKey::of(&key), place.peer);
        if let Some(user) = user {
            if user.has_share_of_peers() {
                let user_peer = (user, PeerKey::of(&key));
                add(&mut self.with_peers, user_peer, place.with_peer);
            }
            match self.counts_of_mut(user) {
                Some(counts) => {
                    counts.all = counts.all.saturating_add(1);
                    counts.unanswered = counts.unanswered.saturating_add(1);
                }
                None => {
                    let first = UserCounts {
                        all: 1,
                        unanswered: 1,
                        attempts: Attempts::default(),
                    };
                    drop(self.users.insert(place.user.into_node(user, first)));
                }
            }
        }
        self.len = self.len.saturating_add(1);
        drop(self.tree.insert(place.entry.into_node(key, value)));
        Ok(())
    }

    /// Removes an entry. If it was added for a user, the caller also calls [`Self::note_removed`],
    /// and [`Self::note_answer`] if its peer has never answered.
    pub(crate) fn remove(&mut self, key: &ConnKey) -> Option<V> {
        let value = self.tree.remove(key)?;
        // INVARIANT: One less in both.
        self.len = self.len.saturating_sub(1);
        subtract(&mut self.peers, &PeerKey::of(key));
        Some(value)
    }

    /// Notes that the peer of an entry added for `user` has answered for the first time, or that
    /// the entry was removed before that.
    pub(crate) fn note_answer(&mut self, user: U) {
        self.change_counts(user, |counts| {
            counts.unanswered = counts.unanswered.saturating_sub(1);
        });
    }

    /// Notes that the entry with this key, which was added for `user`, is removed.
    pub(crate) fn note_removed(&mut self, key: &ConnKey, user: U) {
        subtract(&mut self.with_peers, &(user, PeerKey::of(key)));
        self.change_counts(user, |counts| {
            counts.all = counts.all.saturating_sub(1);
        });
    }

    /// Returns `true` if there are many connections that peers without a message requested.
    pub(crate) fn has_many_strangers(&self) -> bool {
        self.strangers.unanswered >= MANY_STRANGERS
    }

    /// Returns the number of connections that peers without a message requested.
    #[cfg(rds_kunit)]
    pub(crate) fn strangers(&self) -> usize {
        self.strangers.unanswered
    }

    fn for_peers_mut(&mut self, group: AttemptGroup<U>) -> Option<&mut ForPeers> {
        match group {
            AttemptGroup::User(_) => None,
            AttemptGroup::Peers => Some(&mut self.for_peers),
            AttemptGroup::Strangers => Some(&mut self.for_strangers),
        }
    }

    /// Notes that a connection waits until an attempt for its peer may begin, or no longer waits.
    pub(crate) fn note_waiting(&mut self, group: AttemptGroup<U>, waits: bool) {
        if let Some(ForPeers { waiting, .. }) = self.for_peers_mut(group) {
            *waiting = match waits {
                true => waiting.saturating_add(1),
                false => waiting.saturating_sub(1),
            };
        }
    }

    /// Begins an attempt, and returns its place. The caller calls [`Self::end_attempt`] when the
    /// attempt has ended. Returns `None` if nothing is counted, because the table was emptied.
    ///
    /// # Errors
    ///
    /// Returns the delay in milliseconds after which to try again, if the group may not have
    /// another attempt now.
    pub(crate) fn begin_attempt(
        &mut self,
        group: AttemptGroup<U>,
        kind: AttemptKind,
    ) -> Result<Option<AttemptPlace>, u32> {
        let counts = match group {
            AttemptGroup::User(user) => self
                .users
                .get_mut(&user)
                .map(|counts| (&mut counts.attempts, attempts::MOST, counts.unanswered)),
            group => self
                .for_peers_mut(group)
                .map(|counts| (&mut counts.attempts, attempts::MOST_ASKED, counts.waiting)),
        };
        let Some((running, most_first, others)) = counts else {
            return Ok(None);
        };
        match running.begin(kind, most_first) {
            None => Err(attempts::delay_ms(others, kind)),
            place => Ok(place),
        }
    }

    /// Notes that an attempt has ended, whatever its result is.
    pub(crate) fn end_attempt(&mut self, group: AttemptGroup<U>, place: AttemptPlace) {
        match group {
            AttemptGroup::User(user) => {
                self.change_counts(user, |counts| counts.attempts.end(place));
            }
            group => {
                if let Some(counts) = self.for_peers_mut(group) {
                    counts.attempts.end(place);
                }
            }
        }
    }

    /// Changes the counts of a user, and removes them if all are 0 afterwards.
    fn change_counts(&mut self, user: U, change: impl FnOnce(&mut UserCounts)) {
        let Some(counts) = self.counts_of_mut(user) else {
            return;
        };
        change(counts);
        if counts.is_zero() && !user.is_peers() {
            let _: Option<UserCounts> = self.users.remove(&user);
        }
    }

    /// Removes all entries. The caller drops both results without a lock.
    pub(crate) fn take(&mut self) -> (RBTree<ConnKey, V>, impl Sized) {
        // INVARIANT: Empty.
        self.len = 0;
        self.strangers = UserCounts::default();
        (self.for_peers, self.for_strangers) = Default::default();
        let peers = core::mem::replace(&mut self.peers, RBTree::new());
        let users = core::mem::replace(&mut self.users, RBTree::new());
        let with_peers = core::mem::replace(&mut self.with_peers, RBTree::new());
        let tree = core::mem::replace(&mut self.tree, RBTree::new());
        (tree, (peers, users, with_peers))
    }

    /// Returns the entry with the given key, or the next one.
    pub(crate) fn cursor_lower_bound_mut(
        &mut self,
        key: &ConnKey,
    ) -> Option<CursorMut<'_, ConnKey, V>> {
        self.tree.cursor_lower_bound_mut(key)
    }

    /// Calls `each` for up to `most` entries in key order, from `start` on. Returns the key of the
    /// next entry.
    pub(crate) fn walk(
        &mut self,
        start: Option<ConnKey>,
        most: usize,
        mut each: impl FnMut(&V),
    ) -> Option<ConnKey> {
        let mut cursor = match start {
            Some(key) => self.cursor_lower_bound_mut(&key),
            None => self.tree.cursor_front_mut(),
        }?;
        for _ in 0..most {
            each(cursor.current().1);
            cursor = cursor.move_next()?;
        }
        Some(*cursor.current().0)
    }
}
