// SPDX-License-Identifier: GPL-2.0

//! Limit on the connections of all network namespaces but the initial one, together.
//!
//! Any user can make such a namespace, and have both ends of a connection in his own. So there are
//! the limits of a node once more, over all of these namespaces.

use super::{
    key::ConnKey,
    socket_budget::SocketBudget,
    table::{
        AttemptGroup,
        Bounds,
        ConnTable,
        Full,
        TableSlot, //
    },
    table_user::TableUser, //
};
use crate::{
    cong::MapRoom,
    kapi::{
        net::Net,
        sync::{
            new_spinlock_bh,
            SpinLockBh, //
        },
        task::UserId, //
    },
    msg::PongBudget,
    proto::attempts::{
        AttemptKind,
        AttemptPlace, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full as FullOrder,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Maximum number of congestion maps of a node that shares no limits, 8 KiB each. Where a route
/// makes a network local, programs can use each address of it.
const MOST_MAPS: usize = 4096;

/// A user with all network namespaces of users, or a user of one namespace of root.
///
/// Root makes namespaces for those who do not trust each other: containers, whose programs may all
/// run as root. So nobody in one of them takes the share of another one. The peers of a namespace
/// count as one user of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuotaUser {
    user: UserId,
    /// `None` in a namespace of a user, who can make any number of them.
    only_in: Option<Net>,
}

impl QuotaUser {
    /// Returns the one who is charged for a connection of a program of `user`, or else of a peer.
    fn of(key: &ConnKey, user: Option<UserId>, is_of_user: bool) -> Self {
        let user = user.unwrap_or(UserId::PEERS);
        let is_shared = is_of_user && !user.is_peers();
        Self {
            user,
            only_in: (!is_shared).then_some(key.net),
        }
    }
}

impl TableUser for QuotaUser {
    fn is_peers(self) -> bool {
        false
    }

    /// The node of the namespace has these shares.
    fn has_share_of_peers(self) -> bool {
        false
    }
}

/// The connections of all network namespaces but the initial one. It has their keys only.
#[pin_data]
pub(crate) struct ConnQuota {
    #[pin]
    charged: SpinLockBh<ConnTable<(), QuotaUser>>,
}

impl ConnQuota {
    /// Creates a quota without connections.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn new(bounds: Bounds) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                charged <- new_spinlock_bh!(ConnTable::new(bounds), "ConnQuota::charged"),
            }),
            GFP_KERNEL,
        )
    }

    fn has_room(&self, key: &ConnKey, user: QuotaUser) -> Result<(), Full> {
        let room = self.charged.lock().has_room(key, Some(user));
        room.map_err(of_others)
    }
}

/// Converts a limit of the table to that of the quota.
fn of_others(full: Full) -> Full {
    match full {
        Full::All(bound) => Full::Others(bound),
        full => full,
    }
}

/// Charge of one connection. Dropping it ends the charge.
pub(crate) struct QuotaCharge {
    quota: Arc<ConnQuota>,
    key: ConnKey,
    user: QuotaUser,
    is_unanswered: Atomic<bool>,
    is_charged: Atomic<bool>,
}

impl QuotaCharge {
    /// Charges the connection, once.
    ///
    /// # Errors
    ///
    /// The limit that does not allow it.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt. The caller holds the lock of the node's connections, so
    /// no other connection with this key is charged.
    pub(crate) fn charge(&self, place: TableSlot<(), QuotaUser>) -> Result<(), Full> {
        let mut charged = self.quota.charged.lock();
        let inserted = charged.insert(self.key, (), Some(self.user), place);
        inserted.map_err(of_others)?;
        self.is_unanswered.store(true, Relaxed);
        self.is_charged.store(true, Relaxed);
        Ok(())
    }

    /// Notes that the peer has answered.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn note_answer(&self) {
        if self.is_unanswered.xchg(false, FullOrder) {
            self.quota.charged.lock().note_answer(self.user);
        }
    }

    /// Begins an attempt to connect, for a program or in a namespace of a user. Returns its place,
    /// which the caller gives to [`Self::end_attempt`]. `None` if nobody's attempts are counted.
    ///
    /// # Errors
    ///
    /// Returns the delay in milliseconds after which to try again, if the user may not have another
    /// attempt now.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn begin_attempt(&self, kind: AttemptKind) -> Result<Option<AttemptPlace>, u32> {
        if self.user.user.is_peers() {
            return Ok(None);
        }
        let group = AttemptGroup::User(self.user);
        self.quota.charged.lock().begin_attempt(group, kind)
    }

    /// Ends an attempt.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(crate) fn end_attempt(&self, place: AttemptPlace) {
        let group = AttemptGroup::User(self.user);
        self.quota.charged.lock().end_attempt(group, place);
    }

    /// Ends the charge.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn release(&self) {
        if !self.is_charged.xchg(false, FullOrder) {
            return;
        }
        self.note_answer();
        let mut charged = self.quota.charged.lock();
        charged.note_removed(&self.key, self.user);
        charged.remove(&self.key);
    }

    /// Returns `true` if unneeded connections should make room.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn is_near_limit(&self) -> bool {
        self.quota
            .charged
            .lock()
            .is_near_limit(&self.key, Some(self.user))
    }
}

impl Drop for QuotaCharge {
    fn drop(&mut self) {
        self.release();
    }
}

/// Limits of a node.
#[derive(Clone)]
pub(crate) struct NodeLimits {
    /// Limits on connections.
    pub(crate) bounds: Bounds,
    /// Maximum number of receive positions of forgotten connections.
    pub(crate) positions: usize,
    /// Limit that the node shares with others.
    pub(crate) quota: Option<Arc<ConnQuota>>,
    /// Limit on answers to pings that wait for peers.
    pub(crate) pongs: PongBudget,
    /// Limit on the congestion maps of local addresses.
    pub(crate) maps: MapRoom,
    /// Limit on the sockets of peers that wait for their connections. Each listener has others.
    pub(crate) sockets: SocketBudget,
}

impl NodeLimits {
    /// Creates the limits of a node that shares none with others.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn of_one(bounds: Bounds) -> Result<Self> {
        Ok(Self {
            bounds,
            positions: bounds.all,
            quota: None,
            pongs: PongBudget::new()?,
            maps: MapRoom::with_shares(MOST_MAPS)?,
            sockets: SocketBudget::new(usize::MAX)?,
        })
    }
}

impl NodeLimits {
    /// Returns what charges a connection of `user`, if there is a quota. `is_of_user`: its
    /// namespace belongs to a user.
    pub(crate) fn charge_for(
        &self,
        key: ConnKey,
        user: Option<UserId>,
        is_of_user: bool,
    ) -> Option<QuotaCharge> {
        Some(QuotaCharge {
            quota: self.quota.clone()?,
            key,
            user: QuotaUser::of(&key, user, is_of_user),
            is_unanswered: Atomic::new(false),
            is_charged: Atomic::new(false),
        })
    }

    /// Checks that the quota, if there is one, allows another connection with this key.
    ///
    /// # Errors
    ///
    /// The limit that does not allow it.
    ///
    /// # Context
    ///
    /// Any context except hard interrupt.
    pub(super) fn has_room(
        &self,
        key: &ConnKey,
        user: Option<UserId>,
        is_of_user: bool,
    ) -> Result<(), Full> {
        match &self.quota {
            Some(quota) => quota.has_room(key, QuotaUser::of(key, user, is_of_user)),
            None => Ok(()),
        }
    }
}
