// SPDX-License-Identifier: GPL-2.0
//! Operations: what the task that answers a request does with memory of the task that asked.
//!
//! The one that asks registers memory for each request that it has under way, and tells its cookie with the request. The
//! other one's ack comes with the operation, and so after what it did: a write of bytes to that memory, a read of bytes
//! from it, or an addition to a number in it. All of that derives from the two ends, the operation and the number of the
//! request, so whoever gets bytes knows which they have to be.

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
    /// To and from the memory of the end that asked for it. An addition reads and writes.
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

/// What is in the memory that operations of one end on that of the other are about.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    asker: SocketAddr,
    answerer: SocketAddr,
}

impl Pattern {
    fn key(self, operation: Operation) -> Key {
        // 0 is that of the messages.
        let seed = match operation {
            Operation::Write => 1,
            Operation::Read => 2,
            Operation::FetchAdd => 3,
        };
        Key::new(seed, self.asker, self.answerer)
    }

    /// Puts in the bytes that are moved for a request.
    fn fill(self, operation: Operation, request: u64, area: Area<'_>, scratch: &mut Vec<u8>) {
        scratch.resize(area.len(), 0);
        self.key(operation).fill(request, scratch);
        area.write(scratch);
    }

    /// Looks for them.
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

    /// The number before an addition, and what is added.
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
    /// What the peer uses, a slot for each request under way; and then as much that is used for the peer's requests.
    memory: Memory,
    options: Options,
    local: SocketAddr,
    peer: SocketAddr,
    /// The regions of the slots.
    regions: Vec<Option<Cookie>>,
    /// The peer's requests that have no ack yet, oldest first, each with a region.
    owed: VecDeque<(u64, Cookie)>,
    /// Requests of the peer's whose operation the kernel has, by slots, until it says that it has ended.
    under_way: Vec<Option<u64>>,
    /// The first of the tokens that are given to the kernel.
    first_token: u64,
    scratch: Vec<u8>,
}

impl Operations {
    /// Of the `index`th peer of the task at `local`; `None` if the test has no operations.
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
        // Each factor has a limit that keeps this far from an overflow.
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

    /// Operations that the kernel has not said the end of.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.iter().flatten().count()
    }

    /// What has to go with a request, which it makes ready. `register` makes a region, if need be.
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
        // All of the slot, as the region may be there for the next operation, too.
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

    /// Takes the ack of a request: what was done to this end's memory is verified. Returns also a region that has to be
    /// freed.
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

    /// Takes a request of the peer's.
    pub(crate) fn requested(&mut self, request: u64, region: Option<Cookie>) -> Result<()> {
        let region = region.with_context(|| {
            format!("loss: request {request} came without the cookie of a region")
        })?;
        self.owed.push_back((request, region));
        Ok(())
    }

    /// Whether the memory for the operation that goes with an ack is used for an earlier one. That may end after the
    /// ack that it went with was received, and another request was sent.
    pub(crate) fn is_busy(&self, request: u64) -> bool {
        let slot = self.under_way.get(self.slot(request));
        slot.is_some_and(Option::is_some)
    }

    /// The operation that has to go with an ack.
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
            local: parts
                .collect::<Option<_>>()
                .context("a part that is not there")?,
            token,
        })
    }

    /// Notes that the kernel has taken an ack and its operation.
    pub(crate) fn answer_sent(&mut self, request: u64) {
        self.owed.pop_front();
        let slot = self.slot(request);
        if let Some(place) = self.under_way.get_mut(slot) {
            *place = Some(request);
        }
    }

    /// Takes the end of an operation, of which the token is one of these: what came from the peer's memory is verified.
    pub(crate) fn ended(&mut self, ended: &Ended) -> Result<Moved> {
        let slot = self.slot(ended.token.wrapping_sub(self.first_token));
        let request = self
            .under_way
            .get_mut(slot)
            .and_then(Option::take)
            .with_context(|| {
                format!("duplication: the kernel told of {ended:?}, which was not under way")
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

    /// What this end asks the peer for, and the other way round.
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

    /// What is done for a request. The first is another one for the next port, so that tasks which begin together do not
    /// all do the same.
    fn operation(&self, request: u64) -> Operation {
        let first = u64::from(self.local.port()) + u64::from(self.peer.port());
        self.options.rdma.operation(request.wrapping_add(first))
    }

    /// A request's slot. The one that had it before was answered.
    fn slot(&self, request: u64) -> usize {
        // No more than there are of them, which a number has room for.
        (request % u64::from(self.options.depth)) as usize
    }
}

/// All bytes of a slot.
fn whole<'a>(memory: &'a Memory, options: &Options, slot: usize) -> Result<Area<'a>> {
    let at = slot * slot_size(options) + options.rdma.alignment as usize;
    let area = memory.area(at, options.rdma.largest());
    area.context("a slot that is not there")
}

/// Those that an operation is about.
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

/// Bytes from a slot to the next, so that each is as good for numbers as the first.
fn slot_size(options: &Options) -> usize {
    options.rdma.largest().next_multiple_of(NUMBER)
}

#[cfg(test)]
mod tests;
