// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//! Errors with the attempted action, the answer of the kernel, and a hint for the user.

use std::fmt;
use std::io;

/// A failed operation on a socket.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: io::Error,
    hint: Option<&'static str>,
}

impl Error {
    /// Creates an error for `source`, an error of the kernel in an attempt to do `what` (a verb
    /// phrase).
    pub fn new(what: impl Into<String>, source: io::Error) -> Self {
        Error {
            what: what.into(),
            source,
            hint: None,
        }
    }

    /// Does the same for registered memory, or for a message with an operation. Adds a hint for the
    /// user, if one is known.
    pub fn of_operation(what: impl Into<String>, source: io::Error) -> Self {
        let hint = operation_hint(&source);
        Error::new(what, source).with_hint(hint)
    }

    /// Adds a hint for the user, if one is known.
    pub fn with_hint(mut self, hint: Option<&'static str>) -> Self {
        self.hint = hint;
        self
    }
}

impl Error {
    /// Returns the answer of the kernel.
    pub fn io_error(&self) -> &io::Error {
        &self.source
    }

    /// Returns the hint for the user, if one is known.
    pub fn hint(&self) -> Option<&'static str> {
        self.hint
    }
}

impl From<Error> for io::Error {
    /// Returns an error of the same kind, with the full text of [`Error`].
    fn from(error: Error) -> Self {
        io::Error::new(error.source.kind(), error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.what, self.source)?;
        match self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Returns `true` if a send failed because the destination is congested. The socket stays writable:
/// wait for [`crate::PollFd::UNCONGESTED`] and try again.
pub fn is_congested(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

pub(crate) fn socket_hint(errno: Option<i32>) -> Option<&'static str> {
    Some(match errno? {
        libc::EAFNOSUPPORT => {
            "no RDS in this kernel: as root, `modprobe rds_rust`, or `modprobe rds` for C RDS"
        }
        libc::ESOCKTNOSUPPORT => "address family 21 is there, but it is not RDS",
        libc::EMFILE => "this process has too many files open: raise `ulimit -n`",
        _ => return None,
    })
}

pub(crate) fn bind_hint(errno: Option<i32>) -> Option<&'static str> {
    Some(match errno? {
        libc::EADDRNOTAVAIL => {
            "no RDS transport has this address: is it one of this machine (`ip address`), on an RDMA \
             device that is up (`rdma link`), and is the transport loaded (rds_rust or rds_rdma)? \
             RDS over TCP needs no RDMA device: load rds_rust with tcp=1, or rds_tcp"
        }
        libc::EADDRINUSE => "another RDS socket is bound to this address and port",
        libc::EINVAL => "RDS binds to one unicast address, not to a wildcard; port 1 is reserved",
        libc::ENOPROTOOPT => "the transport that was asked for does not have this address",
        _ => return None,
    })
}

pub(crate) fn tos_hint(errno: Option<i32>) -> Option<&'static str> {
    Some(match errno? {
        libc::ENOTTY => "the transport of this address (loopback?) has no type of service",
        libc::EINVAL => "the type of service can be set once, and before the first message",
        _ => return None,
    })
}

pub(crate) fn transport_hint(errno: Option<i32>) -> Option<&'static str> {
    Some(match errno? {
        libc::ENOPROTOOPT => "this transport is not loaded",
        libc::EOPNOTSUPP => "the socket has a transport already: choose it before bind",
        libc::EPROTOTYPE => "only TCP works in a network namespace other than the first",
        _ => return None,
    })
}

fn operation_hint(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::EOPNOTSUPP => {
            "RDMA is between addresses of RDMA devices, not on loopback; iWARP devices have no atomic operations"
        }
        libc::ENOPROTOOPT => "no transport of this kernel's RDS has RDMA: load rds_rust, or rds_rdma",
        libc::EPERM | libc::ENOMEM => {
            "memory that peers use is locked: run as root, or raise `ulimit -l`; or the device has no more regions"
        }
        libc::EMSGSIZE => "an operation moves up to 1 MiB",
        libc::ENODEV => "the RDMA device of the local address is gone",
        _ => return None,
    })
}

pub(crate) fn reset_hint(errno: Option<i32>) -> Option<&'static str> {
    Some(match errno? {
        libc::EACCES => "to reset connections is root's, or that of who has CAP_NET_ADMIN",
        // Option 8 is that of the transport in the kernel's own RDS.
        libc::EOPNOTSUPP | libc::EINVAL | libc::ENOPROTOOPT => {
            "RDS as Linux has it cannot reset connections; rds_rust and Oracle's kernel can"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_call_reason_and_advice() {
        let error = io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
        let hint = socket_hint(error.raw_os_error());
        let text = Error::new("create an RDS socket", error)
            .with_hint(hint)
            .to_string();
        assert!(text.starts_with("cannot create an RDS socket: "), "{text}");
        assert!(text.contains("modprobe rds_rust"), "{text}");
    }

    #[test]
    fn errors_go_on_as_those_of_the_system() {
        let source = || io::Error::from_raw_os_error(libc::EADDRINUSE);
        let error = Error::new("bind", source()).with_hint(bind_hint(Some(libc::EADDRINUSE)));
        assert_eq!(error.io_error().raw_os_error(), Some(libc::EADDRINUSE));
        assert!(error.hint().is_some_and(|hint| hint.contains("bound")));
        let error = io::Error::from(error);
        assert_eq!(error.kind(), source().kind());
        assert!(error.to_string().starts_with("cannot bind: "), "{error}");
    }

    #[test]
    fn operations_have_hints_of_their_own() {
        let text =
            |errno| Error::of_operation("send", io::Error::from_raw_os_error(errno)).to_string();
        assert!(text(libc::EPERM).contains("ulimit -l"));
        assert!(!text(libc::EIO).contains('\n'));
    }

    #[test]
    fn unknown_errors_get_no_hint() {
        assert_eq!(bind_hint(Some(libc::EIO)), None);
        assert_eq!(bind_hint(None), None);
    }
}
