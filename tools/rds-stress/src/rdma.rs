// SPDX-License-Identifier: GPL-2.0
//! The operations of the task that answers a request, on memory of the task that asked.
//!
//! The asking task registers memory for each of its outstanding requests, and sends the cookie with
//! the request. The ack of the other task carries the operation, and so arrives after its effect.
//! The operation writes bytes to that memory, reads bytes from it, or adds to a number in it. All
//! of that derives from the two ends, the operation and the number of the request. So the receiver
//! of bytes knows their expected values.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{bail, ensure, Context, Result};
use rds_content::{Hash, Key};
use rds_socket::{Area, Atomic, Control, Cookie, Direction, Ended, Lifetime, Memory, Status};

use crate::options::{Operation, Options};

/// Bytes of a number that an atomic operation adds to.
const NUMBER: usize = 8;

/// Bytes that operations moved to the memory of this end, and out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Moved {
    /// Returns the bytes to and from the memory of the asking end. An addition reads and writes.
    fn by(operation: Operation, len: usize) -> Self {
        let len = len as u64;
        let (bytes_in, bytes_out) = match operation {
            Operation::Write => (len, 0),
            Operation::Read => (0, len),
            Operation::FetchAdd => (len, len),
        };
        Moved {
            bytes_in,
            bytes_out,
        }
    }

    fn seen_from_the_other_end(self) -> Self {
        Moved {
            bytes_in: self.bytes_out,
            bytes_out: self.bytes_in,
        }
    }
}

/// The content of memory for operations of one end on memory of the other.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    asker: SocketAddr,
    answerer: SocketAddr,
}

impl Pattern {
    fn key(self, operation: Operation) -> Key {
        // 0 is the seed of the messages.
        let seed = match operation {
            Operation::Write => 1,
            Operation::Read => 2,
            Operation::FetchAdd => 3,
        };
        Key::new(seed, self.asker, self.answerer)
    }

    /// Writes the bytes that are moved for a request.
    fn fill(self, operation: Operation, request: u64, area: Area<'_>, scratch: &mut Vec<u8>) {
        scratch.resize(area.len(), 0);
        self.key(operation).fill(request, scratch);
        area.write(scratch);
    }

    /// Verifies these bytes.
    fn verify(
        self,
        operation: Operation,
        request: u64,
        area: Area<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        scratch.resize(area.len(), 0);
        area.read(scratch);
        let key = self.key(operation);
        if key.verify(request, scratch, &mut Hash::default()) {
            return Ok(());
        }
        bail!(
            "corruption: {} of the {} bytes of the {operation} of request {request} are wrong, the first at offset {}",
            scratch.len() - key.matching_bytes(request, scratch),
            scratch.len(),
            key.matching_prefix(request, scratch),
        )
    }

    /// Returns the number before an addition, and the addend.
    fn numbers(self, request: u64) -> (u64, u64) {
        let key = self.key(Operation::FetchAdd);
        let mut add = [0; NUMBER];
        key.fill(request, &mut add);
        (key.draw(request), u64::from_le_bytes(add))
    }
}

/// The operations between two tasks, both ways.
#[derive(Debug)]
pub(crate) struct Operations {
    /// Memory for the peer, with a slot for each outstanding request. The same number of slots
    /// follows, which are used for the peer's requests.
    memory: Memory,
    options: Options,
    local: SocketAddr,
    peer: SocketAddr,
    /// The regions of the slots.
    regions: Vec<Option<Cookie>>,
    /// The peer's requests that have no ack yet, oldest first, each with a region.
    owed: VecDeque<(u64, Cookie)>,
    /// The peer's requests, by slot, whose operation the kernel has accepted and not yet reported
    /// as ended.
    under_way: Vec<Option<u64>>,
    /// The first of the tokens for the kernel.
    first_token: u64,
    scratch: Vec<u8>,
}

impl Operations {
    /// Creates those of the `index`th peer of the task at `local`; `None` if the test has no
    /// operations.
    pub(crate) fn new(
        index: usize,
        local: SocketAddr,
        peer: SocketAddr,
        options: &Options,
    ) -> Result<Option<Self>> {
        if !options.rdma.is_on() {
            return Ok(None);
        }
        let depth = options.depth as usize;
        // The limits of the factors keep this far from an overflow.
        let len = slot_size(options) * 2 * depth + options.rdma.alignment as usize;
        Ok(Some(Operations {
            memory: Memory::new(len)?,
            options: options.clone(),
            local,
            peer,
            regions: vec![None; depth],
            owed: VecDeque::new(),
            under_way: vec![None; depth],
            first_token: index as u64 * u64::from(options.depth),
            scratch: Vec::new(),
        }))
    }

    /// Returns the number of operations whose end the kernel has not reported.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.iter().flatten().count()
    }

    /// Prepares memory for a request, and returns its control message. `register` creates a region,
    /// if one is needed.
    pub(crate) fn ask(
        &mut self,
        request: u64,
        register: impl FnOnce(Area<'_>, Lifetime) -> Result<Cookie>,
    ) -> Result<Control<'_>> {
        let slot = self.slot(request);
        let operation = self.operation(request);
        let pattern = self.asked();
        let area = area(&self.memory, &self.options, slot, operation)?;
        match operation {
            Operation::Read if self.options.verify => {
                pattern.fill(operation, request, area, &mut self.scratch);
            }
            Operation::FetchAdd => area.write(&pattern.numbers(request).0.to_ne_bytes()),
            _ => {}
        }
        let rdma = &self.options.rdma;
        let lifetime = if rdma.use_once {
            Lifetime::Once
        } else {
            Lifetime::UntilFreed
        };
        // The region has all of the slot, as it may also be used by the next operation.
        let area = whole(&self.memory, &self.options, slot)?;
        if !rdma.use_get_mr {
            return Ok(Control::Register(area, lifetime));
        }
        let region = self.regions.get_mut(slot).context("no such slot")?;
        let region = match region {
            Some(region) => *region,
            None => *region.insert(register(area, lifetime)?),
        };
        Ok(Control::Region(region))
    }

    /// Notes that a request was sent, which may have registered a region.
    pub(crate) fn asked_for(&mut self, request: u64, region: Option<Cookie>) {
        let slot = self.slot(request);
        if let Some(place) = self.regions.get_mut(slot) {
            *place = region.or(*place);
        }
    }

    /// Handles the ack of a request: verifies the effect on this end's memory. Also returns a
    /// region that has to be freed.
    pub(crate) fn answered(&mut self, request: u64) -> Result<(Moved, Option<Cookie>)> {
        let slot = self.slot(request);
        let operation = self.operation(request);
        let pattern = self.asked();
        let area = area(&self.memory, &self.options, slot, operation)?;
        match operation {
            Operation::Write if self.options.verify => {
                pattern.verify(operation, request, area, &mut self.scratch)?;
            }
            Operation::FetchAdd => {
                let (before, add) = pattern.numbers(request);
                let (found, wanted) = (area.number(), before.wrapping_add(add));
                ensure!(
                    found == wanted,
                    "corruption: the number of request {request} is {found:#x} after {add:#x} was added to \
                     {before:#x}, not {wanted:#x}"
                );
            }
            _ => {}
        }
        let moved = Moved::by(operation, area.len());
        let rdma = &self.options.rdma;
        if rdma.cache_mrs {
            return Ok((moved, None));
        }
        let region = self.regions.get_mut(slot).and_then(Option::take);
        Ok((moved, region.filter(|_| !rdma.use_once)))
    }

    /// Handles a request of the peer.
    pub(crate) fn requested(&mut self, request: u64, region: Option<Cookie>) -> Result<()> {
        let region = region.with_context(|| {
            format!("loss: request {request} came without the cookie of a region")
        })?;
        self.owed.push_back((request, region));
        Ok(())
    }

    /// Returns `true` if an earlier operation still uses the memory for an ack's operation. Its end
    /// may come after the peer has received its ack and has sent another request.
    pub(crate) fn is_busy(&self, request: u64) -> bool {
        let slot = self.under_way.get(self.slot(request));
        slot.is_some_and(Option::is_some)
    }

    /// Returns the operation that an ack has to carry.
    pub(crate) fn answer(&mut self, request: u64) -> Result<Control<'_>> {
        let slot = self.slot(request);
        let token = self.first_token + slot as u64;
        let operation = self.operation(request);
        let pattern = self.requested_of_us();
        let (_, region) = *self
            .owed
            .front()
            .filter(|&&(oldest, _)| oldest == request)
            .with_context(|| format!("no region for the answer to request {request}"))?;
        let local = area(
            &self.memory,
            &self.options,
            slot + self.under_way.len(),
            operation,
        )?;
        let direction = match operation {
            Operation::Write => Direction::Write,
            Operation::Read => Direction::Read,
            Operation::FetchAdd => {
                let add = pattern.numbers(request).1;
                return Ok(Control::Atomic {
                    operation: Atomic::FetchAdd { add },
                    region,
                    at: 0,
                    local,
                    token,
                });
            }
        };
        if operation == Operation::Write && self.options.verify {
            pattern.fill(operation, request, local, &mut self.scratch);
        }
        let each = self.options.rdma.bytes as usize;
        let parts = (0..self.options.rdma.buffers as usize).map(|i| local.part(i * each, each));
        Ok(Control::Transfer {
            direction,
            region,
            at: 0,
            local: parts.collect::<Option<_>>().context("no such part")?,
            token,
        })
    }

    /// Notes that the kernel has accepted an ack and its operation.
    pub(crate) fn answer_sent(&mut self, request: u64) {
        self.owed.pop_front();
        let slot = self.slot(request);
        if let Some(place) = self.under_way.get_mut(slot) {
            *place = Some(request);
        }
    }

    /// Handles the end of an operation with one of these tokens: verifies bytes from the peer's
    /// memory.
    pub(crate) fn ended(&mut self, ended: &Ended) -> Result<Moved> {
        let slot = self.slot(ended.token.wrapping_sub(self.first_token));
        let request = self
            .under_way
            .get_mut(slot)
            .and_then(Option::take)
            .with_context(|| {
                format!("duplication: the kernel reported {ended:?}, which was not outstanding")
            })?;
        let operation = self.operation(request);
        let status = ended.status;
        ensure!(
            status == Status::Success,
            "the {operation} of request {request} failed with {status}"
        );
        let pattern = self.requested_of_us();
        let area = area(
            &self.memory,
            &self.options,
            slot + self.under_way.len(),
            operation,
        )?;
        match operation {
            Operation::Read if self.options.verify => {
                pattern.verify(operation, request, area, &mut self.scratch)?;
            }
            Operation::FetchAdd => {
                let (before, _) = pattern.numbers(request);
                let found = area.number();
                ensure!(
                    found == before,
                    "corruption: the {operation} of request {request} brought {found:#x}, but {before:#x} was there"
                );
            }
            _ => {}
        }
        Ok(Moved::by(operation, area.len()).seen_from_the_other_end())
    }

    /// Returns the pattern of this end's requests to the peer.
    fn asked(&self) -> Pattern {
        Pattern {
            asker: self.local,
            answerer: self.peer,
        }
    }

    fn requested_of_us(&self) -> Pattern {
        Pattern {
            asker: self.peer,
            answerer: self.local,
        }
    }

    /// Returns the operation for a request. The first one depends on the port, so that tasks which
    /// begin together do not all do the same.
    fn operation(&self, request: u64) -> Operation {
        let first = u64::from(self.local.port()) + u64::from(self.peer.port());
        self.options.rdma.operation(request.wrapping_add(first))
    }

    /// Returns a request's slot. The request that used it before was answered.
    fn slot(&self, request: u64) -> usize {
        // The result is less than the depth, so the conversion is exact.
        (request % u64::from(self.options.depth)) as usize
    }
}

/// Returns all bytes of a slot.
fn whole<'a>(memory: &'a Memory, options: &Options, slot: usize) -> Result<Area<'a>> {
    let at = slot * slot_size(options) + options.rdma.alignment as usize;
    let area = memory.area(at, options.rdma.largest());
    area.context("no such slot")
}

/// Returns the bytes of a slot that an operation uses.
fn area<'a>(
    memory: &'a Memory,
    options: &Options,
    slot: usize,
    operation: Operation,
) -> Result<Area<'a>> {
    let len = match operation {
        Operation::FetchAdd => NUMBER,
        _ => options.rdma.transfer(),
    };
    let area = whole(memory, options, slot)?.part(0, len);
    area.context("an operation beyond its slot")
}

/// Returns the bytes from a slot to the next, so that numbers are aligned in each slot as in the
/// first.
fn slot_size(options: &Options) -> usize {
    options.rdma.largest().next_multiple_of(NUMBER)
}

#[cfg(test)]
mod tests;
