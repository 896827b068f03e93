// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/path_choice.rs`: spreading, and the order of messages under its rules.

use crate::proto::{
    mprds::PathCount,
    path_choice::{path_of, place_of, Place, PLACES},
};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const COUNTS: [PathCount; 4] = [
    PathCount::One,
    PathCount::Two,
    PathCount::Four,
    PathCount::Eight,
];

/// Returns the path of a port that has sent nothing.
fn fresh(secret: u16, port: u16, count: PathCount) -> u8 {
    path_of(place_of(port, secret), count)
}

#[test]
fn one_path_is_the_first() {
    for port in 0..=u16::MAX {
        assert!(place_of(port, 77) < PLACES);
        assert_eq!(fresh(77, port, PathCount::One), 0);
    }
}

/// Ports that programs use, one after the other or in steps, are spread over all paths.
#[test]
fn ports_are_spread() {
    for count in COUNTS {
        for secret in [0, 1, 0x1234, 0xffff] {
            for step in [1, 2, 3, 8, 10, 16, 100] {
                let mut used = BTreeMap::new();
                for port in (0..64).map(|index| 4000 + index * step) {
                    *used.entry(fresh(secret, port, count)).or_insert(0) += 1;
                }
                let (paths, even) = (count.number(), 64 / count.number());
                assert_eq!(used.len(), usize::from(paths), "{secret} {step}");
                assert!(used.keys().all(|path| count.has(*path)));
                assert!(used.values().all(|ports| *ports <= 3 * even), "{used:?}");
            }
        }
    }
}

/// Other nodes cannot predict the paths.
#[test]
fn the_secret_matters() {
    let paths = |secret| -> Vec<u8> {
        (4000..4064)
            .map(|port| fresh(secret, port, PathCount::Eight))
            .collect()
    };
    assert_ne!(paths(1), paths(0x5a5a));
}

#[test]
fn a_place_keeps_its_path_while_it_has_messages() {
    let mut place = Place::new();
    assert_eq!((place.word(), place.path(), place.is_empty()), (0, 0, true));
    place = place.with_message(0).with_message(7);
    assert_eq!((place.path(), place.is_empty()), (0, false));
    place = place.without_message();
    assert_eq!(place.with_message(7).path(), 0);
    place = place.without_message();
    assert!(place.is_empty());
    place = place.with_message(7);
    assert_eq!((place.path(), place.is_empty()), (7, false));
    assert_eq!(Place::from_word(place.word()), place);
    // It leaves the path that it has, and no other.
    assert_eq!(place.leaving(6), place);
    place = place.leaving(7);
    assert_eq!((place.path(), place.is_empty()), (0, false));
    place = place.without_message();
    assert_eq!(place, Place::new());
    // One drop too many does no harm.
    assert_eq!(place.without_message(), place);
    assert_eq!(place.with_message(5).without_message().path(), 5);
}

/// Something that happens. Each sender is a thread with a socket, and has a step for each lock or
/// exchange of a word. The same thread moves the messages of one path after the other.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A sender does its next step.
    Send(usize),
    /// The first message of a path arrives.
    Arrive(usize),
    /// The sender gets to know what has arrived on a path, and drops that.
    Acknowledge(usize),
    /// The peer has restarted, so messages begin to move, unless they do.
    Restart,
    /// The worker of the first path moves a message, or closes a path.
    Move,
    /// This becomes the number of paths, unless messages are moving.
    Open(PathCount),
}

const SENDERS: usize = 6;

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        12 => (0..SENDERS).prop_map(Happening::Send),
        3 => (0usize..8).prop_map(Happening::Arrive),
        3 => (0usize..8).prop_map(Happening::Acknowledge),
        1 => Just(Happening::Restart),
        6 => Just(Happening::Move),
        2 => (0usize..4).prop_map(|index| Happening::Open(COUNTS[index])),
    ]
}

/// A message: its sender, and its number among those of the sender.
type Message = (usize, u32);

/// The next step of a sender.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Adds the next message, for the number of paths that it has read.
    Add(PathCount),
    /// Queues the message on a path, if that still is the right one.
    Queue(u8),
}

/// A sender of messages.
#[derive(Clone, Debug)]
struct Sender {
    /// Several share a place.
    place: usize,
    step: Option<Step>,
    sent: u32,
    arrived: u32,
}

/// A path: its queue, of which the first messages have arrived, and whether it is open.
#[derive(Clone, Debug, Default)]
struct Path {
    queue: VecDeque<Message>,
    arrived: usize,
    is_open: bool,
}

/// A connection with several paths.
struct World {
    places: [Place; PLACES],
    paths: Vec<Path>,
    senders: Vec<Sender>,
    count: PathCount,
    /// The path whose messages move.
    moving: Option<u8>,
}

impl World {
    fn new(places: [usize; SENDERS]) -> Self {
        let sender = |place| Sender {
            place,
            step: None,
            sent: 0,
            arrived: 0,
        };
        let mut paths = vec![Path::default(); 8];
        paths[0].is_open = true;
        World {
            places: [Place::new(); PLACES],
            paths,
            senders: places.into_iter().map(sender).collect(),
            count: PathCount::One,
            moving: None,
        }
    }

    fn send(&mut self, index: usize) {
        let sender = &mut self.senders[index];
        let place = &mut self.places[sender.place];
        sender.step = match sender.step {
            None => Some(Step::Add(self.count)),
            Some(Step::Add(count)) => {
                *place = place.with_message(path_of(sender.place, count));
                Some(Step::Queue(place.path()))
            }
            Some(Step::Queue(path)) if place.path() != path => Some(Step::Queue(place.path())),
            Some(Step::Queue(path)) if !self.paths[usize::from(path)].is_open => {
                *place = place.leaving(path);
                Some(Step::Queue(0))
            }
            Some(Step::Queue(path)) => {
                sender.sent += 1;
                let path = &mut self.paths[usize::from(path)];
                path.queue.push_back((index, sender.sent));
                None
            }
        };
    }

    /// Returns an error if the message is not the next one of its sender. The peer has restarted if
    /// it has got none before.
    fn arrive(&mut self, path: usize) -> Result<(), TestCaseError> {
        let path = &mut self.paths[path];
        let Some((sender, number)) = path.queue.get(path.arrived) else {
            return Ok(());
        };
        path.arrived += 1;
        let before = std::mem::replace(&mut self.senders[*sender].arrived, *number);
        prop_assert_eq!(*number, before + 1, "of sender {}", sender);
        Ok(())
    }

    fn acknowledge(&mut self, path: usize) {
        let path = &mut self.paths[path];
        for (sender, _) in path.queue.drain(..path.arrived) {
            let place = &mut self.places[self.senders[sender].place];
            *place = place.without_message();
        }
        path.arrived = 0;
    }

    /// Ends all links. Only a restart of the peer makes it forget, so what it has got already does
    /// not arrive again in this world.
    fn restart(&mut self) {
        if self.moving.is_none() && self.count > PathCount::One {
            for path in 0..8 {
                self.acknowledge(path);
            }
            self.count = PathCount::One;
            self.moving = Some(7);
        }
    }

    fn move_one(&mut self) {
        let Some(index) = self.moving else {
            return;
        };
        // Both queues are locked.
        let path = &mut self.paths[usize::from(index)];
        if let Some(message) = path.queue.pop_front() {
            self.paths[0].queue.push_back(message);
            return;
        }
        path.is_open = false;
        for place in &mut self.places {
            *place = place.leaving(index);
        }
        self.moving = Some(index - 1).filter(|next| *next > 0);
    }

    fn open(&mut self, count: PathCount) {
        if self.moving.is_none() && count > self.count {
            self.count = count;
            for (index, path) in (0..).zip(&mut self.paths) {
                path.is_open |= count.has(index);
            }
        }
    }

    fn happen(&mut self, happening: Happening) -> Result<(), TestCaseError> {
        match happening {
            Happening::Send(sender) => self.send(sender),
            // The links of other paths have ended.
            Happening::Arrive(path) if self.moving.is_some() && path > 0 => {}
            Happening::Arrive(path) => return self.arrive(path),
            Happening::Acknowledge(path) => self.acknowledge(path),
            Happening::Restart => self.restart(),
            Happening::Move => self.move_one(),
            Happening::Open(count) => self.open(count),
        }
        Ok(())
    }

    /// Lets all that was begun end. Then everything has arrived, and no place has messages.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        while self.moving.is_some() {
            self.move_one();
        }
        for sender in 0..SENDERS {
            while self.senders[sender].step.is_some() {
                self.send(sender);
            }
        }
        for path in 0..8 {
            while self.paths[path].arrived < self.paths[path].queue.len() {
                prop_assert!(self.paths[path].is_open, "stranded on path {}", path);
                self.arrive(path)?;
            }
            self.acknowledge(path);
        }
        for sender in &self.senders {
            prop_assert_eq!(sender.arrived, sender.sent);
        }
        prop_assert!(self.places.iter().all(|place| place.is_empty()));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2 * ProptestConfig::default().cases,
        ..ProptestConfig::default()
    })]

    /// The messages of each sender arrive in order, whatever path is faster, and all of them
    /// arrive.
    #[test]
    fn messages_of_a_sender_stay_in_order(
        places in prop::array::uniform6(prop_oneof![3 => 5usize..8, 1 => 0..PLACES]),
        happenings in prop::collection::vec(happening(), 0..400),
    ) {
        let mut world = World::new(places);
        for happening in happenings {
            world.happen(happening)?;
        }
        world.finish()?;
    }

    /// A place that has nothing under way is on the path that its messages would have at first.
    #[test]
    fn a_port_moves_as_soon_as_it_may(secret: u16, port: u16, index in 0usize..4) {
        let count = COUNTS[index];
        let wanted = fresh(secret, port, count);
        let place = Place::new().with_message(0).without_message();
        prop_assert_eq!(place.with_message(wanted).path(), wanted);
        prop_assert!(count.has(wanted));
    }
}
