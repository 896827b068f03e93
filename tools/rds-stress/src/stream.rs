// SPDX-License-Identifier: GPL-2.0
//! The messages between a task and one task of the other end: requests without an ack, and acks
//! that are owed.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use rds_content::Key;
use rds_socket::{Control, Cookie, RdsSocket};

use crate::message::{Defect, Header, Op};
use crate::options::Options;
use crate::rdma::{Moved, Operations};

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    Request,
    /// An ack, with the time since the request.
    Ack(Duration),
}

/// Both directions between two tasks.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) to: SocketAddr,
    /// The kernel refused a message to the peer, and has not reported that there may be room again.
    pub(crate) congested: bool,
    out_key: Key,
    in_key: Key,
    /// Numbers of the next message in each direction.
    next_out: u64,
    next_in: u64,
    /// Number of the next request to send, and of the next to receive.
    next_request: u64,
    next_incoming: u64,
    /// Send times of the requests that wait for an ack, the last of them `next_request - 1`.
    waiting: VecDeque<Instant>,
    /// Number of received requests that are not answered, the last of them `next_incoming - 1`.
    owed: u64,
    /// The operations of requests and acks, if any.
    pub(crate) operations: Option<Operations>,
}

impl Stream {
    pub(crate) fn new(local: SocketAddr, to: SocketAddr) -> Self {
        const SEED: u64 = 0;
        Stream {
            to,
            congested: false,
            out_key: Key::new(SEED, local, to),
            in_key: Key::new(SEED, to, local),
            next_out: 0,
            next_in: 0,
            next_request: 0,
            next_incoming: 0,
            waiting: VecDeque::new(),
            owed: 0,
            operations: None,
        }
    }

    /// Returns `true` if neither end waits for anything.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting() == 0 && self.owed == 0 && self.under_way() == 0
    }

    /// Returns the number of operations that have not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.operations.as_ref().map_or(0, Operations::under_way)
    }

    /// Returns the number of requests that wait for an ack.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of owed acks.
    pub(crate) fn owed(&self) -> u64 {
        self.owed
    }

    /// Returns the next message to send: an owed ack, or else a request if there `may` be one.
    /// There is none while the memory for the operation of the owed ack is in use.
    pub(crate) fn next(&self, may: bool, options: &Options) -> Option<Header> {
        let seq = self.next_out;
        if self.owed > 0 {
            let request = self.next_incoming - self.owed;
            let op = Op::Ack;
            let operations = self.operations.as_ref();
            let busy = operations.is_some_and(|x| x.is_busy(request));
            return (!busy).then_some(Header { op, seq, request });
        }
        (may && self.waiting.len() < options.depth as usize).then_some(Header {
            op: Op::Request,
            seq,
            request: self.next_request,
        })
    }

    /// Writes the message to send.
    pub(crate) fn write(&self, header: Header, message: &mut [u8], options: &Options) {
        header.write(self.out_key, message, options.verify);
    }

    /// Returns the control message of the message to send.
    pub(crate) fn control(
        &mut self,
        socket: &RdsSocket,
        header: Header,
    ) -> Result<Option<Control<'_>>> {
        let Some(operations) = &mut self.operations else {
            return Ok(None);
        };
        match header.op {
            Op::Request => operations.ask(header.request, |area, lifetime| {
                Ok(socket.register(area, lifetime)?)
            }),
            Op::Ack => operations.answer(header.request),
        }
        .map(Some)
    }

    /// Notes at the time `now` that the kernel has accepted the message of [`Self::next`]. The call
    /// may have registered a region.
    pub(crate) fn sent(&mut self, header: Header, region: Option<Cookie>, now: Instant) {
        self.next_out += 1;
        if let Some(operations) = &mut self.operations {
            match header.op {
                Op::Request => operations.asked_for(header.request, region),
                Op::Ack => operations.answer_sent(header.request),
            }
        }
        match header.op {
            Op::Ack => self.owed -= 1,
            Op::Request => {
                self.next_request += 1;
                self.waiting.push_back(now);
            }
        }
    }

    /// Handles a message that came at `now`; `cut`: the kernel has truncated it.
    pub(crate) fn accept(
        &mut self,
        message: &[u8],
        cut: bool,
        now: Instant,
        options: &Options,
    ) -> Result<(Header, Incoming), Defect> {
        let header = Header::read(self.in_key, self.next_in, message, cut, options)?;
        let request = header.request;
        let incoming = match header.op {
            Op::Request => {
                let due = self.next_incoming;
                if request != due || self.owed >= u64::from(options.depth) {
                    return Err(Defect::WrongRequest { request, due });
                }
                self.next_incoming += 1;
                self.owed += 1;
                Incoming::Request
            }
            Op::Ack => {
                let oldest = self.next_request - self.waiting.len() as u64;
                let due = (!self.waiting.is_empty()).then_some(oldest);
                match self.waiting.pop_front() {
                    Some(sent) if due == Some(request) => {
                        Incoming::Ack(now.saturating_duration_since(sent))
                    }
                    _ => return Err(Defect::WrongAck { request, due }),
                }
            }
        };
        self.next_in += 1;
        Ok((header, incoming))
    }

    /// Handles the control messages of a message, after [`Self::accept`]. Returns the moved bytes.
    pub(crate) fn accept_control(
        &mut self,
        socket: &RdsSocket,
        header: Header,
        region: Option<Cookie>,
    ) -> Result<Moved> {
        let Header { op, request, .. } = header;
        match (op, &mut self.operations) {
            (Op::Request, Some(operations)) => {
                operations.requested(request, region)?;
                Ok(Moved::default())
            }
            (Op::Ack, Some(operations)) if region.is_none() => {
                let (moved, region) = operations.answered(request)?;
                if let Some(region) = region {
                    socket.free(region)?;
                }
                Ok(moved)
            }
            _ => {
                ensure!(
                    region.is_none(),
                    "foreign data: a cookie came with the {op} of request {request}"
                );
                Ok(Moved::default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::example;

    /// Returns both ends of a stream.
    fn pair() -> [Stream; 2] {
        let (a, b) = (([10, 0, 0, 1], 4001).into(), ([10, 0, 0, 2], 4001).into());
        [Stream::new(a, b), Stream::new(b, a)]
    }

    fn send(stream: &mut Stream, may: bool) -> Option<Vec<u8>> {
        let options = example();
        let header = stream.next(may, &options)?;
        let mut message = vec![0; header.op.size(&options)];
        stream.write(header, &mut message, &options);
        stream.sent(header, None, Instant::now());
        Some(message)
    }

    fn accept(stream: &mut Stream, message: &[u8]) -> Result<Incoming, Defect> {
        let accepted = stream.accept(message, false, Instant::now(), &example());
        accepted.map(|(_, incoming)| incoming)
    }

    #[test]
    fn depth_limits_waiting_requests() {
        let [mut a, mut b] = pair();
        let requests: Vec<_> = std::iter::from_fn(|| send(&mut a, true)).collect();
        assert_eq!((requests.len(), a.waiting()), (4, 4));
        for request in &requests {
            assert_eq!(accept(&mut b, request), Ok(Incoming::Request));
        }
        assert_eq!(b.owed(), 4);
        let acks: Vec<_> = std::iter::from_fn(|| send(&mut b, false)).collect();
        for ack in &acks {
            assert!(matches!(accept(&mut a, ack), Ok(Incoming::Ack(_))));
        }
        assert_eq!((a.waiting(), b.owed()), (0, 0));
        assert_eq!(send(&mut a, false), None);
    }

    #[test]
    fn both_directions_at_once() {
        let [mut a, mut b] = pair();
        for _ in 0..100 {
            let from_a = send(&mut a, true).unwrap();
            let from_b = send(&mut b, true).unwrap();
            accept(&mut b, &from_a).unwrap();
            accept(&mut a, &from_b).unwrap();
        }
        while let Some(message) = send(&mut a, false) {
            accept(&mut b, &message).unwrap();
        }
        while let Some(message) = send(&mut b, false) {
            accept(&mut a, &message).unwrap();
        }
        assert_eq!((a.waiting(), b.waiting()), (0, 0));
    }

    #[test]
    fn loss_duplication_and_reordering_are_seen() {
        let [mut a, mut b] = pair();
        let messages: Vec<_> = (0..3).map(|_| send(&mut a, true).unwrap()).collect();
        accept(&mut b, &messages[0]).unwrap();
        assert!(matches!(
            accept(&mut b, &messages[0]),
            Err(Defect::Again { seq: 0, .. })
        ));
        assert!(matches!(
            accept(&mut b, &messages[2]),
            Err(Defect::Gap { expected: 1, .. })
        ));
    }

    /// Returns a message that the other end should not have sent, with a valid header.
    fn forged(op: Op, seq: u64, request: u64, stream: &Stream) -> Vec<u8> {
        let mut message = vec![0; op.size(&example())];
        Header { op, seq, request }.write(stream.in_key, &mut message, true);
        message
    }

    #[test]
    fn a_wrong_ack_is_seen() {
        let [mut a, _] = pair();
        let ack = forged(Op::Ack, 0, 0, &a);
        let none = Defect::WrongAck {
            request: 0,
            due: None,
        };
        assert_eq!(accept(&mut a, &ack), Err(none));
        let [mut a, _] = pair();
        send(&mut a, true);
        send(&mut a, true);
        let ack = forged(Op::Ack, 0, 1, &a);
        let other = Defect::WrongAck {
            request: 1,
            due: Some(0),
        };
        assert_eq!(accept(&mut a, &ack), Err(other));
    }

    #[test]
    fn more_requests_than_agreed_are_seen() {
        let [mut a, _] = pair();
        for seq in 0..4 {
            let request = forged(Op::Request, seq, seq, &a);
            assert_eq!(accept(&mut a, &request), Ok(Incoming::Request));
        }
        let request = forged(Op::Request, 4, 4, &a);
        let wrong = Defect::WrongRequest { request: 4, due: 4 };
        assert_eq!(accept(&mut a, &request), Err(wrong));
    }
}
