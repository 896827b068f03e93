// SPDX-License-Identifier: GPL-2.0

//! Two nodes on a virtual clock: connection machines, send and receive states and real headers.
//!
//! Frames of one connection arrive in order, as on a reliable connection, until the connection
//! breaks. Unacknowledged messages are then sent again, so messages may arrive twice. CM messages
//! are delayed, overtake each other and get lost.
//!
//! A CM refuses a request whose queue pair number it knows from another connection, which is stale
//! then. It does not know connections in timewait: Linux's CM forgets the number when timewait
//! begins.
//!
//! The seed determines all of it. A failure prints its seed; `RDS_SIM_SEED=<seed>` runs that one
//! alone and prints every step.

mod brain;
mod handshakes;
mod looks;
mod node;
mod pairs;
mod restarts;
mod tests;

use crate::proto::connect::{Event, State};
use crate::proto::idle::IdleTimeouts;
use crate::proto::wire::Header;
use brain::Brain;
use node::Node;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Microseconds since the start.
type Time = u64;

/// Number of an endpoint, unique over both nodes and all time.
type EndpointId = u32;

const MS: Time = 1000;

/// Retry interval of the CM for unanswered messages.
const CM_RETRY: Time = 300 * MS;

/// Default limit for idle connections in tests with periodic checks.
const IDLE: IdleTimeouts = IdleTimeouts::new(2);

/// A small generator, so that a seed means the same everywhere.
#[derive(Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// Messages from the CM of one node to that of the other.
#[derive(Clone, Copy, Debug)]
enum Cm {
    Request {
        from: EndpointId,
    },
    /// The sender no longer waits for an answer to this request.
    Withdraw {
        from: EndpointId,
    },
    Reply {
        from: EndpointId,
        to: EndpointId,
    },
    Confirm {
        to: EndpointId,
    },
    Reject {
        to: EndpointId,
    },
    Disconnect {
        to: EndpointId,
    },
}

/// Events of the simulation.
#[derive(Clone, Debug)]
enum Happening {
    /// The application of a node queues a message of `len` bytes.
    Queue {
        node: usize,
        len: u32,
    },
    /// The application of a node cancels its newest message, if that was not sent.
    Cancel {
        node: usize,
    },
    /// An endpoint reports an event to its machine.
    Endpoint {
        id: EndpointId,
        event: Event,
    },
    /// A timer expires, unless it was restarted since.
    Timer {
        node: usize,
        generation: u64,
    },
    Cm {
        node: usize,
        message: Cm,
    },
    /// The worker of a node handles the request that waits for it.
    Request {
        node: usize,
        from: EndpointId,
    },
    Frame {
        from: EndpointId,
        to: EndpointId,
        bytes: [u8; Header::LEN],
        payload: usize,
    },
    /// The connection of this endpoint breaks.
    Break {
        node: usize,
    },
    /// A node crashes and restarts.
    Restart {
        node: usize,
    },
    /// The connection of a node is reported idle.
    Idle {
        node: usize,
    },
    /// A node checks periodically whether its connection is idle.
    Look {
        node: usize,
    },
    /// A node checks periodically whether its peer is silent.
    Listen {
        node: usize,
    },
}

/// Faults and delays of the network.
#[derive(Clone, Copy, Debug)]
struct Weather {
    /// Percentage of CM messages lost and of local steps that fail.
    loss: u64,
    /// Maximum delay of a CM message.
    cm_delay: Time,
    /// Maximum time that a request waits for the worker.
    worker_delay: Time,
    /// Time from which nothing is lost and nothing breaks.
    calm_from: Time,
    /// Loss of the next CM messages: one bit each, the lowest first.
    fate: u32,
}

/// The two nodes and the network between them.
#[derive(Clone)]
struct World {
    now: Time,
    order: u64,
    agenda: BinaryHeap<Reverse<(Time, u64, usize)>>,
    happenings: BTreeMap<usize, Happening>,
    rng: Rng,
    weather: Weather,
    nodes: [Node; 2],
    /// The node of every endpoint that ever existed.
    owners: Vec<usize>,
    /// The queue pair number of each endpoint.
    queue_pairs: Vec<u32>,
    /// Count of queue pair numbers of a node. A number is reused soon or at once, and the first
    /// ones are reused after a restart.
    numbers: u32,
    /// Count of requests with the queue pair number of an existing connection.
    stale: u32,
    /// Arrival time of the last frame to an endpoint, and whether its connection is broken.
    links: BTreeMap<EndpointId, (Time, bool)>,
    /// Limit for idle connections.
    idle_timeouts: IdleTimeouts,
    /// End of the periodic checks.
    looks_until: Time,
    trace: bool,
}

impl World {
    /// Creates a world in which node 0 has the lower address.
    fn new(seed: u64, weather: Weather, brains: [Brain; 2], trace: bool) -> Self {
        let [a, b] = brains;
        World {
            now: 0,
            order: 0,
            agenda: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            rng: Rng(seed),
            weather,
            nodes: [Node::new(a, 1, 0), Node::new(b, 2, 0)],
            owners: Vec::new(),
            queue_pairs: Vec::new(),
            numbers: 1 + (seed % 4) as u32,
            stale: 0,
            links: BTreeMap::new(),
            idle_timeouts: IDLE,
            looks_until: 0,
            trace,
        }
    }

    fn at(&mut self, time: Time, happening: Happening) {
        let key = self.order as usize;
        self.order += 1;
        self.happenings.insert(key, happening);
        self.agenda
            .push(Reverse((time.max(self.now), key as u64, key)));
    }

    fn after(&mut self, delay: Time, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    fn bad_luck(&mut self) -> bool {
        let chance = self.weather.loss;
        self.now < self.weather.calm_from && self.rng.percent(chance)
    }

    /// Runs all events that are due until `end`. Returns `true` if no events are left.
    fn run_until(&mut self, end: Time) -> bool {
        while let Some(Reverse((time, _, _))) = self.agenda.peek().copied() {
            if time > end {
                return false;
            }
            self.run_one();
        }
        true
    }

    /// Runs the next event.
    fn run_one(&mut self) {
        let Some(Reverse((time, _, key))) = self.agenda.pop() else {
            return;
        };
        self.now = time;
        let happening = self.happenings.remove(&key).unwrap();
        if self.trace {
            eprintln!("{time:>10} {happening:x?}");
        }
        self.happen(happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Queue { node, len } => {
                self.nodes[node].queue(len);
                self.feed(node, Event::Wanted);
                self.pump(node);
            }
            Happening::Cancel { node } => self.nodes[node].cancel_newest(),
            Happening::Endpoint { id, event } => {
                let node = self.owners[id as usize];
                if self.nodes[node].endpoint == Some(id) {
                    if event == Event::Step {
                        // The second step is the last one.
                        self.local_step(node, Event::Prepared);
                    }
                    self.feed(node, event);
                }
            }
            Happening::Timer { node, generation } => {
                if self.nodes[node].timer == generation {
                    self.feed(node, Event::Timer);
                }
            }
            Happening::Cm { node, message } => self.receive_cm(node, message),
            Happening::Request { node, from } => {
                if self.nodes[node].request == Some(from) {
                    self.feed(node, Event::Request);
                }
            }
            Happening::Frame {
                from,
                to,
                bytes,
                payload,
            } => self.receive_frame(from, to, &bytes, payload),
            Happening::Restart { node } => self.restart(node),
            Happening::Idle { node } => self.feed(node, Event::Idle),
            Happening::Look { node } => self.check(node),
            Happening::Listen { node } => self.listen(node),
            Happening::Break { node } => {
                if let (Some(id), Some(peer)) =
                    (self.nodes[node].endpoint, self.nodes[node].peer_endpoint)
                {
                    if self.now < self.weather.calm_from {
                        self.break_link(id, peer);
                    }
                }
            }
        }
    }

    /// Restarts a node. Its state is lost, and no other node is notified.
    fn restart(&mut self, node: usize) {
        let generation = self.rng.next() as u32;
        let life = self.nodes[node].life + 1;
        let brain = match self.nodes[node].is_ours() {
            true => Brain::rust(),
            false => Brain::c(),
        };
        let new = Node::new(brain, generation, life);
        let old = std::mem::replace(&mut self.nodes[node], new);
        if old.is_ours() {
            self.nodes[node].begin_behind(&old);
        }
        self.nodes[node].negotiate_anew(old.negotiation);
        self.nodes[node].timer = old.timer + 1;
        self.nodes[node].sent_before_restart = old.sent;
        self.nodes[1 - node].due_since_restart = 0;
    }

    /// Breaks a link: nothing arrives from now on. Each side may notice soon; a side that sends
    /// always notices.
    fn break_link(&mut self, a: EndpointId, b: EndpointId) {
        for id in [a, b] {
            self.links.entry(id).or_default().1 = true;
            if self.rng.percent(70) {
                self.lose(id, 50 * MS);
            }
        }
    }

    fn lose(&mut self, id: EndpointId, within: Time) {
        let delay = self.rng.below(within);
        let event = Event::Lost;
        self.after(delay, Happening::Endpoint { id, event });
    }

    fn send_cm(&mut self, from: usize, message: Cm) {
        let doomed = self.weather.fate & 1 == 1;
        self.weather.fate >>= 1;
        if !self.bad_luck() && !doomed {
            let delay = 20 + self.rng.below(self.weather.cm_delay);
            let node = 1 - from;
            self.after(delay, Happening::Cm { node, message });
        }
    }

    fn receive_cm(&mut self, node: usize, message: Cm) {
        let here = self.nodes[node].endpoint;
        match message {
            Cm::Request { from } if self.is_stale(node, from) => self.refuse_stale(node, from),
            // Another request waits for the worker.
            Cm::Request { from } if self.nodes[node].request.is_some() => {
                self.send_cm(node, Cm::Reject { to: from });
            }
            Cm::Request { from } => {
                self.nodes[node].request = Some(from);
                let delay = self.rng.below(self.weather.worker_delay + 1);
                self.after(delay, Happening::Request { node, from });
            }
            Cm::Withdraw { from } => {
                self.nodes[node].request.take_if(|request| *request == from);
            }
            Cm::Reply { from, to } => {
                if here == Some(to) && self.nodes[node].state() == State::Connecting {
                    self.nodes[node].peer_endpoint = Some(from);
                    self.send_cm(node, Cm::Confirm { to: from });
                    self.feed(node, Event::Established);
                } else {
                    self.send_cm(node, Cm::Reject { to: from });
                }
            }
            Cm::Confirm { to } if here == Some(to) => self.feed(node, Event::Established),
            Cm::Reject { to } if here == Some(to) => self.feed(node, Event::Rejected),
            Cm::Disconnect { to } if here == Some(to) => self.feed(node, Event::Lost),
            Cm::Confirm { .. } | Cm::Reject { .. } | Cm::Disconnect { .. } => (),
        }
    }

    /// Returns `true` if the CM of a node knows the queue pair of a request as the peer's end of
    /// another connection.
    fn is_stale(&self, node: usize, from: EndpointId) -> bool {
        let number = |id: EndpointId| self.queue_pairs[id as usize];
        let peer = self.nodes[node].peer_endpoint;
        peer.is_some_and(|id| id != from && number(id) == number(from))
    }

    /// Refuses a request in the CM. The CM disconnects the other connection if that was up, and
    /// reports the end when the peer's CM has answered.
    fn refuse_stale(&mut self, node: usize, from: EndpointId) {
        self.stale += 1;
        self.send_cm(node, Cm::Reject { to: from });
        if self.nodes[node].state() == State::Up {
            let mut delay = 40 + self.rng.below(2 * self.weather.cm_delay);
            while self.bad_luck() {
                delay += CM_RETRY;
            }
            let id = self.nodes[node].endpoint.unwrap();
            let event = Event::Lost;
            self.after(delay, Happening::Endpoint { id, event });
        }
    }

    /// Puts a frame on the wire of the endpoint of `node`.
    fn send_frame(&mut self, node: usize, header: &Header, payload: usize) {
        let from = self.nodes[node].endpoint.unwrap();
        let to = self.nodes[node].peer_endpoint.unwrap();
        let mut bytes = [0; Header::LEN];
        header.emit(&mut bytes);
        self.nodes[node].activity.given += 1;
        let delay = 5 + self.rng.below(40);
        let link = self.links.entry(to).or_default();
        let time = link.0.max(self.now + delay) + 1;
        link.0 = time;
        let frame = Happening::Frame {
            from,
            to,
            bytes,
            payload,
        };
        self.at(time, frame);
    }

    fn receive_frame(
        &mut self,
        from: EndpointId,
        to: EndpointId,
        bytes: &[u8; 48],
        payload: usize,
    ) {
        let node = self.owners[to as usize];
        let broken = self.links.get(&to).is_some_and(|link| link.1);
        if broken || self.nodes[node].endpoint != Some(to) {
            // The sender's device retries for a while and gives up.
            self.lose(from, 20 * MS);
            return;
        }
        let sender = &mut self.nodes[1 - node];
        if sender.endpoint == Some(from) {
            sender.activity.done += 1;
        }
        self.nodes[node].activity.arrived += 1;
        if self.nodes[node].state() == State::Accepting {
            // Data is as good as the confirmation.
            self.feed(node, Event::Established);
        }
        match self.nodes[node].receive(bytes, payload) {
            Ok(()) => self.pump(node),
            Err(error) => panic!("a node breaks the protocol: {error}"),
        }
    }
}
