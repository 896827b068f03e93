// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! What the kernel tells a program beside a message, or without one.

use std::fmt;
use std::io;

use crate::control::decode;
use crate::rdma::{Cookie, RDS_CMSG_RDMA_DEST};

const RDS_CMSG_RDMA_STATUS: i32 = 4;
const RDS_CMSG_CONG_UPDATE: i32 = 5;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Success,
    /// The peer's device refused it.
    RemoteError,
    /// The program took it back.
    Canceled,
    /// The connection ended before it was known to be done.
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
    /// What the operation was given.
    pub token: u64,
    /// How it ended.
    pub status: Status,
}

/// What came beyond a message, or without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// The sender's region.
    pub region: Option<Cookie>,
    /// Operations that have ended. They come without a message.
    pub ended: Vec<Ended>,
    /// Ports that may have room again. It comes without a message.
    pub uncongested: Ports,
}

/// Ports of peers, of which only the number modulo 64 is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports(u64);

impl Ports {
    /// Whether `port` is one of them.
    pub fn contain(self, port: u16) -> bool {
        self.0 & 1 << (port % 64) != 0
    }
}

impl Notices {
    /// From what the kernel wrote.
    ///
    /// # Errors
    ///
    /// `EBADMSG`: what it wrote is too short.
    pub(crate) fn parse(bytes: &[u8]) -> io::Result<Self> {
        let short = || io::Error::from_raw_os_error(libc::EBADMSG);
        let mut notices = Notices::default();
        for (kind, data) in decode(bytes) {
            match kind {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::encode;

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
