// SPDX-License-Identifier: GPL-2.0

//! Keys of memory, as messages carry them. `uapi/rdma.rs` has the arguments of programs.

use super::exthdr::{
    self,
    Extension,
    Extensions, //
};

/// Most bytes that one operation moves.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Name of a program's memory that its peers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) rkey: u32,
    /// Start of the memory in the address space of the key, in bytes.
    pub(crate) offset: u32,
}

impl Cookie {
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self {
            // CAST: the lower half is the key, the upper one the offset.
            rkey: bits as u32,
            offset: (bits >> 32) as u32,
        }
    }

    pub(crate) const fn to_bits(self) -> u64 {
        (self.offset as u64) << 32 | self.rkey as u64
    }
}

/// RDMA information in the extensions of a message's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RdmaExthdrs {
    /// Memory of the sender that the receiver may use.
    pub(crate) memory: Option<Cookie>,
    /// Key of the receiver's memory that the sender has used.
    pub(crate) used: Option<u32>,
}

impl RdmaExthdrs {
    /// Reads the extensions of a header. Returns `None` if none of them concerns RDMA.
    #[inline]
    pub(crate) fn read(space: &[u8; exthdr::SPACE]) -> Option<Self> {
        if *space == [0; exthdr::SPACE] {
            return None;
        }
        let mut this = Self::default();
        for extension in Extensions::new(space) {
            match extension {
                Extension::RdmaDest { rkey, offset } => this.memory = Some(Cookie { rkey, offset }),
                Extension::Rdma { rkey } => this.used = Some(rkey),
                _ => {}
            }
        }
        (this != Self::default()).then_some(this)
    }

    /// Returns the extensions of the header.
    pub(crate) fn emit(self) -> [u8; exthdr::SPACE] {
        let mut writer = exthdr::ExthdrWriter::new();
        // There is room for both.
        if let Some(rkey) = self.used {
            let _ = writer.push(Extension::Rdma { rkey });
        }
        if let Some(Cookie { rkey, offset }) = self.memory {
            let _ = writer.push(Extension::RdmaDest { rkey, offset });
        }
        writer.finish()
    }
}
