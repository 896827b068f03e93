// SPDX-License-Identifier: GPL-2.0

//! One attempt to connect, and the connection that it becomes.

use super::{
    context::{
        Role,
        TcpContext, //
    },
    link::TcpLink,
    tcp::Tcp, //
};
use crate::{
    conn::{
        ConnKey,
        Connection,
        Endpoint,
        EndpointEvent,
        EndpointProgress,
        Link,
        NextStep,
        Request, //
    },
    kapi::{
        errno::Errno,
        net::{
            tcp::{
                TcpAddr,
                TcpSocket, //
            },
            Locality,
            NetRef, //
        },
        time, //
    },
    proto::{
        tcp_role,
        tcp_stream, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Ports that one attempt to connect tries.
const MOST_PORTS: u32 = 64;

/// An endpoint.
pub(crate) struct TcpEndpoint {
    context: Arc<TcpContext>,
}

impl TcpEndpoint {
    /// Begins an attempt. Addresses and routes are found by TCP. May sleep.
    pub(super) fn prepare(
        transport: &Arc<Tcp>,
        connection: &Arc<Connection>,
    ) -> Result<KBox<dyn Endpoint>> {
        let key = &connection.key;
        if transport.net.is_broadcast(key.faddr) {
            return Err(EINVAL);
        }
        // Local messages do not get here, but the address may be local only since recently.
        if transport.net.locality(key.faddr, key.scope) != Locality::Elsewhere {
            return Err(Errno::NotSupported.into());
        }
        let role = match connection.is_lower() {
            true => Role::Active,
            false => Role::WakeUp,
        };
        let context = TcpContext::new(transport, connection, role)?;
        context.progress.set(EndpointEvent::Prepared);
        Ok(KBox::new(Self { context }, GFP_KERNEL)?)
    }

    /// Creates the endpoint of a connection that the peer has made.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn passive(
        transport: &Arc<Tcp>,
        connection: &Arc<Connection>,
    ) -> Result<KBox<Self>> {
        let context = TcpContext::new(transport, connection, Role::Passive)?;
        Ok(KBox::new(Self { context }, GFP_KERNEL)?)
    }
}

/// Binds a socket to the local address of a connection, and a port of its path.
///
/// # Errors
///
/// - `EADDRINUSE` if there is no free port.
/// - `EADDRNOTAVAIL` if the address is not local.
/// - `ENODEV` if the namespace has ended.
fn bind(net: &NetRef, socket: &TcpSocket, key: &ConnKey) -> Result {
    let net = net.try_use()?;
    let (low, high) = net.local_ports();
    let random = time::random_u32();
    for attempt in 0..MOST_PORTS {
        let Some(port) = tcp_role::port(low, high, key.path, random, attempt) else {
            break;
        };
        if net.is_reserved(port) {
            continue;
        }
        let addr = TcpAddr {
            addr: key.laddr,
            port,
            scope: key.scope,
        };
        match socket.bind(&addr) {
            Err(error) if error == Errno::AddressInUse.into() => {}
            result => return result,
        }
    }
    Err(Errno::AddressInUse.into())
}

impl Drop for TcpEndpoint {
    fn drop(&mut self) {
        self.context.close();
    }
}

impl Endpoint for TcpEndpoint {
    fn progress(&self) -> &EndpointProgress {
        &self.context.progress
    }

    /// TCP prepares nothing in advance, so this is not called.
    fn next_step(&mut self) -> Result<NextStep> {
        Err(EINVAL)
    }

    fn connect(&mut self) -> Result {
        let key = &self.context.connection.key;
        let transport = &self.context.transport;
        let socket = TcpSocket::for_peer(&transport.net, key.faddr)?;
        let (send, receive) = transport.tunables.buffers();
        socket.set_buffers(send, receive);
        bind(&transport.net, &socket, key)?;
        self.context.start(socket, |socket| {
            socket.connect(&TcpAddr {
                addr: key.faddr,
                port: tcp_stream::PORT,
                scope: key.scope,
            })
        })
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        if self.context.role() == Role::WakeUp {
            return None;
        }
        let link = Arc::new(TcpLink(self.context.clone()), GFP_KERNEL).ok()?;
        Some(link)
    }
}

/// A socket of the peer whose first header has arrived, waiting for the worker.
///
/// Messages may have arrived with it, which C RDS counts as delivered. So everything is allocated
/// before, and accepting the socket receives them even if it fails.
pub(crate) struct IncomingStream {
    socket: Option<TcpSocket>,
    endpoint: Option<KBox<TcpEndpoint>>,
}

impl IncomingStream {
    pub(crate) fn new(socket: TcpSocket, endpoint: KBox<TcpEndpoint>) -> Self {
        Self {
            socket: Some(socket),
            endpoint: Some(endpoint),
        }
    }
}

impl Request for IncomingStream {
    /// Even if the peer has closed the socket, its messages may be there to be received.
    fn has_ended(&self) -> bool {
        false
    }

    fn accept(&mut self, _: &Arc<Connection>) -> Result<KBox<dyn Endpoint>> {
        let endpoint = self.endpoint.take().ok_or(ENODEV)?;
        let socket = self.socket.take().ok_or(ENODEV)?;
        endpoint.context.start(socket, |_| Ok(()))?;
        Ok(endpoint)
    }

    /// Only the end of the module or of the network namespace rejects it. Nothing counts that,
    /// because the counters end, too.
    fn reject(&mut self, _: &Connection) {
        self.endpoint = None;
        self.socket = None;
    }
}
