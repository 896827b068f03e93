// SPDX-License-Identifier: GPL-2.0
//! stub
use kernel::prelude::*;
#[derive(Clone)]
pub(crate) struct Buf;
impl Buf { pub(crate) fn bytes(&self)->&[u8]{&[]} pub(crate) fn bytes_mut(&mut self)->Option<&mut [u8]>{None} pub(crate) fn capacity(&self)->usize{0} }
pub(crate) enum Context { MaySleep, Atomic }
pub(crate) struct Pools;
impl Pools { pub(crate) fn alloc_send(&self, _len: u32, _c: Context)->Result<Buf>{Err(ENOMEM)} }
