// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Information that a receive call returns with a message, or without one.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::control::decode;
use crate::rdma::{Cookie, RDS_CMSG_RDMA_DEST};
use crate::SOL_RDS;

const RDS_CMSG_RDMA_STATUS: i32 = 4;
const RDS_CMSG_CONG_UPDATE: i32 = 5;
const RDS_CMSG_RXPATH_LATENCY: i32 = 11;

/// Time stamps of seconds and microseconds, `SO_TIMESTAMP` and `SO_TIMESTAMP_NEW`. 32-bit machines
/// have both.
const MICROSECONDS: [i32; 2] = [29, 63];

/// Time stamps of seconds and nanoseconds, `SO_TIMESTAMPNS` and `SO_TIMESTAMPNS_NEW`.
const NANOSECONDS: [i32; 2] = [35, 64];

/// Largest number of spans that the kernel reports for one message.
const SPANS: usize = 3;

/// The status of an ended operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was successful.
    Success,
    /// The peer's device refused it.
    RemoteError,
    /// The program canceled it.
    Canceled,
    /// The connection was lost before the operation was known to be complete.
    Dropped,
    /// It failed for another reason.
    OtherError,
    /// A number that this program does not know.
    Unknown(i32),
}

impl From<i32> for Status {
    fn from(number: i32) -> Self {
        match number {
            0 => Status::Success,
            1 => Status::RemoteError,
            2 => Status::Canceled,
            3 => Status::Dropped,
            4 => Status::OtherError,
            other => Status::Unknown(other),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "RDS_RDMA_SUCCESS: it is done",
            Status::RemoteError => {
                "RDS_RDMA_REMOTE_ERROR: the peer's device refused it (a key or a length that is not good?)"
            }
            Status::Canceled => "RDS_RDMA_CANCELED: it was taken back before it began",
            Status::Dropped => {
                "RDS_RDMA_DROPPED: the connection ended before it was known to be done (see the kernel's log)"
            }
            Status::OtherError => "RDS_RDMA_OTHER_ERROR: the peer does not answer, or this end's device failed (see the kernel's log)",
            Status::Unknown(number) => return write!(f, "status {number}, which is not in linux/rds.h"),
        })
    }
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The token that the program gave to the operation.
    pub token: u64,
    /// Its status.
    pub status: Status,
}

/// A part of the latency of a message, until it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From the first frame until memory for the message is allocated.
    Start,
    /// From then until the message is at its socket.
    Reassembly,
    /// From then until it is read.
    Delivery,
}

impl Span {
    pub(crate) const ALL: [Self; SPANS] = [Span::Start, Span::Reassembly, Span::Delivery];

    /// Returns the kernel's number of the span.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }
}

/// Information beside a message, or without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notices {
    /// The sender's region.
    pub region: Option<Cookie>,
    /// The time at which the message was queued at the socket, with
    /// [`RdsSocket::set_timestamps`](crate::RdsSocket::set_timestamps).
    pub queued_at: Option<SystemTime>,
    /// The latency of the message, with
    /// [`RdsSocket::set_latency_trace`](crate::RdsSocket::set_latency_trace).
    pub latency: Vec<(Span, Duration)>,
    /// Operations that have ended. They come without a message.
    pub ended: Vec<Ended>,
    /// Ports that may have room again. They come without a message.
    pub uncongested: Ports,
}

/// Ports of peers, of which only the number modulo 64 is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports(u64);

impl Ports {
    /// Returns `true` if `port` is one of them.
    pub fn contain(self, port: u16) -> bool {
        self.0 & 1 << (port % 64) != 0
    }
}

impl Notices {
    /// Parses the control messages that the kernel wrote.
    ///
    /// # Errors
    ///
    /// `EBADMSG`: a control message is too short.
    pub(crate) fn parse(bytes: &[u8]) -> io::Result<Self> {
        let short = || io::Error::from_raw_os_error(libc::EBADMSG);
        let mut notices = Notices::default();
        for (level, kind, data) in decode(bytes) {
            if level == libc::SOL_SOCKET {
                if MICROSECONDS.contains(&kind) {
                    notices.queued_at = Some(time(data, 1000).ok_or_else(short)?);
                } else if NANOSECONDS.contains(&kind) {
                    notices.queued_at = Some(time(data, 1).ok_or_else(short)?);
                }
            }
            if level != SOL_RDS {
                continue;
            }
            match kind {
                RDS_CMSG_RXPATH_LATENCY => notices.latency = spans(data).ok_or_else(short)?,
                RDS_CMSG_RDMA_DEST => {
                    let cookie = data.first_chunk().ok_or_else(short)?;
                    notices.region = Some(Cookie::new(u64::from_ne_bytes(*cookie)));
                }
                RDS_CMSG_RDMA_STATUS => {
                    let (token, rest) = data.split_first_chunk().ok_or_else(short)?;
                    let status = rest.first_chunk().ok_or_else(short)?;
                    notices.ended.push(Ended {
                        token: u64::from_ne_bytes(*token),
                        status: i32::from_ne_bytes(*status).into(),
                    });
                }
                RDS_CMSG_CONG_UPDATE => {
                    let mask = data.first_chunk().ok_or_else(short)?;
                    notices.uncongested.0 |= u64::from_ne_bytes(*mask);
                }
                _ => {}
            }
        }
        Ok(notices)
    }
}

/// Converts seconds since 1970, and a part of a second in units of `unit` nanoseconds. Both numbers
/// have the same size.
fn time(data: &[u8], unit: u32) -> Option<SystemTime> {
    let number = |bytes: &[u8]| match bytes.len() {
        4 => Some(i64::from(i32::from_ne_bytes(bytes.try_into().ok()?))),
        8 => Some(i64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    };
    let (seconds, part) = data.split_at_checked(data.len() / 2)?;
    let nanos = u32::try_from(number(part)?).ok()?.checked_mul(unit)?;
    let since = Duration::new(u64::try_from(number(seconds)?).ok()?, nanos);
    UNIX_EPOCH.checked_add(since)
}

/// Parses `struct rds_cmsg_rx_trace`: the number of spans, their kinds, and nanoseconds.
fn spans(data: &[u8]) -> Option<Vec<(Span, Duration)>> {
    let (&count, rest) = data.split_first()?;
    let (which, rest) = rest.split_at_checked(SPANS)?;
    let times = rest.get(4..)?.chunks_exact(8);
    let all = which.iter().zip(times).take(count.into());
    let known = all.filter_map(|(&which, time)| {
        let span = *Span::ALL.get(usize::from(which))?;
        let nanos = u64::from_ne_bytes(time.try_into().ok()?);
        Some((span, Duration::from_nanos(nanos)))
    });
    Some(known.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::encode;

    /// Encodes a control message of another level.
    fn of_level(level: i32, kind: i32, data: &[u64]) -> Vec<u8> {
        let mut bytes = encode(kind, data);
        let at = size_of::<usize>();
        bytes[at..at + 4].copy_from_slice(&level.to_ne_bytes());
        bytes
    }

    #[test]
    fn times_are_read() {
        let read = |kind, data: &[u64]| {
            Notices::parse(&of_level(libc::SOL_SOCKET, kind, data)).map(|x| x.queued_at)
        };
        let wanted = UNIX_EPOCH + Duration::new(1_700_000_000, 5000);
        assert_eq!(read(29, &[1_700_000_000, 5]).unwrap(), Some(wanted));
        assert_eq!(read(35, &[1_700_000_000, 5000]).unwrap(), Some(wanted));
        assert_eq!(
            time(&[[7u8, 0, 0, 0], [5, 0, 0, 0]].concat(), 1000),
            Some(UNIX_EPOCH + Duration::new(7, 5000))
        );
        assert_eq!(read(30, &[1, 2]).unwrap(), None);
        for data in [&[][..], &[u64::MAX, 0], &[0, u64::MAX], &[1, 2, 3]] {
            assert!(read(29, data).is_err(), "{data:?}");
        }
        // On other levels the number has another meaning.
        let other = of_level(libc::SOL_SOCKET, RDS_CMSG_RDMA_DEST, &[8]);
        assert_eq!(Notices::parse(&other).unwrap(), Notices::default());
    }

    #[test]
    fn latencies_are_read() {
        let head = u64::from_ne_bytes([2, 1, 2, 0, 0, 0, 0, 0]);
        let read = |data: &[u64]| {
            Notices::parse(&encode(RDS_CMSG_RXPATH_LATENCY, data)).map(|x| x.latency)
        };
        let found = read(&[head, 10, 20, 30]).unwrap();
        let [ten, twenty] = [10, 20].map(Duration::from_nanos);
        assert_eq!(found, [(Span::Reassembly, ten), (Span::Delivery, twenty)]);
        // An unknown span, and a count that is larger than the room.
        let head = u64::from_ne_bytes([9, 7, 0, 1, 0, 0, 0, 0]);
        assert_eq!(read(&[head, 10, 20, 30]).unwrap().len(), 2);
        assert!(read(&[]).is_err());
    }

    #[test]
    fn notices_are_read() {
        let mut bytes = encode(RDS_CMSG_RDMA_STATUS, &[5, 0]);
        bytes.extend(encode(RDS_CMSG_RDMA_STATUS, &[6, 3]));
        bytes.extend(encode(RDS_CMSG_CONG_UPDATE, &[1 << 3]));
        bytes.extend(encode(99, &[1]));
        bytes.extend(encode(RDS_CMSG_RDMA_DEST, &[8]));
        let notices = Notices::parse(&bytes).unwrap();
        let ended = |token, status| Ended { token, status };
        let wanted = [ended(5, Status::Success), ended(6, Status::Dropped)];
        assert_eq!(notices.ended, wanted);
        assert_eq!(notices.region, Some(Cookie::new(8)));
        let ports = [3, 67, 4003, 4, 0].map(|port| notices.uncongested.contain(port));
        assert_eq!(ports, [true, true, false, false, false]);
        assert!(Ports(1 << 35).contain(4003));
        assert_eq!(Notices::parse(&[]).unwrap(), Notices::default());
        for (kind, words) in [
            (RDS_CMSG_RDMA_STATUS, 1),
            (RDS_CMSG_RDMA_DEST, 0),
            (RDS_CMSG_CONG_UPDATE, 0),
        ] {
            let short = encode(kind, &vec![0; words]);
            assert!(Notices::parse(&short).is_err());
        }
    }

    #[test]
    fn statuses_have_their_names() {
        for (number, name) in [
            (1, "RDS_RDMA_REMOTE_ERROR"),
            (2, "RDS_RDMA_CANCELED"),
            (3, "RDS_RDMA_DROPPED"),
            (4, "RDS_RDMA_OTHER_ERROR"),
            (99, "status 99"),
        ] {
            let text = Status::from(number).to_string();
            assert!(text.starts_with(name), "{text}");
        }
    }
}
