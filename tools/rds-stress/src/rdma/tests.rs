// SPDX-License-Identifier: GPL-2.0
//! Both ends of operations, with a copy in place of the devices.

use super::*;
use crate::options::example;

/// Returns both ends of a test with all operations.
fn pair(change: impl FnOnce(&mut Options)) -> [Operations; 2] {
    let mut options = example();
    options.rdma.bytes = 100;
    options.rdma.buffers = 3;
    options.rdma.atomics = true;
    change(&mut options);
    let (a, b) = (([10, 0, 0, 1], 4001).into(), ([10, 0, 0, 2], 4002).into());
    [(a, b), (b, a)].map(|(local, peer)| {
        let operations = Operations::new(5, local, peer, &options);
        operations.unwrap().unwrap()
    })
}

fn never(_: Area<'_>, _: Lifetime) -> Result<Cookie> {
    bail!("nobody wants a region")
}

const REGION: Cookie = Cookie::new(9);

fn ask(asker: &mut Operations, request: u64) {
    let control = asker.ask(request, never).unwrap();
    assert!(matches!(control, Control::Register(_, Lifetime::Once)));
    asker.asked_for(request, Some(REGION));
}

/// Does the work of a device for the control message of an ack. Returns its token.
fn operate(asker: &Operations, answerer: &mut Operations, request: u64) -> u64 {
    let slot = asker.slot(request);
    let remote = whole(&asker.memory, &asker.options, slot).unwrap();
    let copy = |from: Area<'_>, to: Area<'_>| {
        let mut bytes = vec![0; from.len()];
        from.read(&mut bytes);
        to.write(&bytes);
    };
    let token = match answerer.answer(request).unwrap() {
        Control::Transfer {
            direction,
            region,
            at: 0,
            local,
            token,
        } => {
            assert_eq!((region, local.len()), (REGION, 3));
            for (i, local) in local.into_iter().enumerate() {
                let remote = remote.part(i * 100, local.len()).unwrap();
                match direction {
                    Direction::Write => copy(local, remote),
                    Direction::Read => copy(remote, local),
                }
            }
            token
        }
        Control::Atomic {
            operation: Atomic::FetchAdd { add },
            local,
            token,
            ..
        } => {
            copy(remote, local);
            remote.write(&remote.number().wrapping_add(add).to_ne_bytes());
            token
        }
        other => panic!("{other:?}"),
    };
    answerer.answer_sent(request);
    token
}

fn success(token: u64) -> Ended {
    let status = Status::Success;
    Ended { token, status }
}

#[test]
fn all_operations_go_well() {
    let [mut asker, mut answerer] = pair(|_| {});
    let mut kinds = [0; 3];
    for request in 0..30 {
        ask(&mut asker, request);
        answerer.requested(request, Some(REGION)).unwrap();
        let token = operate(&asker, &mut answerer, request);
        assert_eq!((answerer.under_way(), token / 4), (1, 5));
        assert!(answerer.is_busy(request) && answerer.is_busy(request + 4));
        assert!(!answerer.is_busy(request + 1));
        let there = answerer.ended(&success(token)).unwrap();
        let (here, region) = asker.answered(request).unwrap();
        assert_eq!((here.seen_from_the_other_end(), region), (there, None));
        assert_eq!(answerer.under_way(), 0);
        kinds[match here {
            Moved {
                bytes_in: 300,
                bytes_out: 0,
            } => 0,
            Moved {
                bytes_in: 0,
                bytes_out: 300,
            } => 1,
            Moved {
                bytes_in: 8,
                bytes_out: 8,
            } => 2,
            other => panic!("{other:?}"),
        }] += 1;
    }
    assert_eq!(kinds, [10; 3]);
}

#[test]
fn every_wrong_byte_is_seen() {
    // A request of each operation, in the slot of its number.
    for request in 0..3 {
        for spoiled in [0, 7, 8, 150, 299] {
            let [mut asker, mut answerer] = pair(|_| {});
            ask(&mut asker, request);
            answerer.requested(request, Some(REGION)).unwrap();
            let token = operate(&asker, &mut answerer, request);
            for (end, slot) in [(&asker, request), (&answerer, request + 4)] {
                let area = whole(&end.memory, &end.options, slot as usize).unwrap();
                let area = area.part(spoiled, 1).unwrap();
                let mut byte = [0];
                area.read(&mut byte);
                area.write(&[byte[0] ^ 4]);
            }
            let (len, asker_sees, answerer_sees) = match asker.operation(request) {
                Operation::Write => (300, true, false),
                Operation::Read => (300, false, true),
                Operation::FetchAdd => (8, true, true),
            };
            let found = [
                asker.answered(request).map(drop),
                answerer.ended(&success(token)).map(drop),
            ];
            for (found, sees) in found.into_iter().zip([asker_sees, answerer_sees]) {
                assert_eq!(found.is_err(), sees && spoiled < len, "{request} {spoiled}");
                if let Err(error) = found {
                    assert!(error.to_string().starts_with("corruption"), "{error}");
                }
            }
        }
    }
}

#[test]
fn nothing_done_is_seen() {
    for request in 0..3 {
        let [mut asker, mut answerer] = pair(|_| {});
        ask(&mut asker, request);
        answerer.requested(request, Some(REGION)).unwrap();
        assert!(answerer.answer(request).is_ok());
        answerer.answer_sent(request);
        let token = 5 * 4 + request;
        let ends = [
            asker.answered(request).is_err(),
            answerer.ended(&success(token)).is_err(),
        ];
        assert!(ends.contains(&true), "{request}");
    }
}

#[test]
fn failures_have_the_names_of_their_statuses() {
    let [mut asker, mut answerer] = pair(|_| {});
    ask(&mut asker, 0);
    answerer.requested(0, Some(REGION)).unwrap();
    let token = operate(&asker, &mut answerer, 0);
    let status = Status::RemoteError;
    let error = answerer.ended(&Ended { token, status }).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("failed with RDS_RDMA_REMOTE_ERROR"),
        "{error}"
    );
    let error = answerer.ended(&success(token)).unwrap_err();
    assert!(error.to_string().contains("not outstanding"), "{error}");
    let error = answerer.requested(1, None).unwrap_err();
    assert!(error.to_string().contains("without the cookie"), "{error}");
    assert!(answerer.answer(1).is_err());
}

#[test]
fn regions_are_freed_or_kept() {
    for (cache_mrs, registered) in [(false, 3), (true, 1)] {
        let [mut asker, mut answerer] = pair(|options| {
            options.depth = 1;
            let rdma = &mut options.rdma;
            (rdma.use_once, rdma.use_get_mr) = (false, true);
            rdma.cache_mrs = cache_mrs;
        });
        let mut count = 0;
        for request in 0..3 {
            // At first the kernel has no room for it.
            for _ in 0..2 {
                let register = |area: Area<'_>, lifetime| {
                    count += 1;
                    assert_eq!((area.len(), lifetime), (300, Lifetime::UntilFreed));
                    Ok(REGION)
                };
                let control = asker.ask(request, register).unwrap();
                assert!(matches!(control, Control::Region(REGION)));
            }
            asker.asked_for(request, None);
            answerer.requested(request, Some(REGION)).unwrap();
            let token = operate(&asker, &mut answerer, request);
            answerer.ended(&success(token)).unwrap();
            let freed = asker.answered(request).unwrap().1;
            assert_eq!(freed, (!cache_mrs).then_some(REGION));
        }
        assert_eq!(count, registered);
    }
}

#[test]
fn the_two_ways_have_different_bytes() {
    let [a, b] = pair(|_| {});
    let keys = [a, b].map(|end| {
        [Operation::Write, Operation::Read, Operation::FetchAdd]
            .map(|operation| end.asked().key(operation))
    });
    let keys = keys.concat();
    assert!((1..keys.len()).all(|i| !keys[..i].contains(&keys[i])));
}
