// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of walks over a queue that changes meanwhile.

use crate::kapi::sync::{
    Fifo,
    Item,
    Pick,
    Walk, //
};
use kernel::prelude::*;

#[kunit_tests(rds_fifo)]
mod suite {
    use super::*;

    fn push(fifo: &mut Fifo<u32>, numbers: core::ops::Range<u32>) {
        for number in numbers {
            fifo.push_back(Item::new(number, GFP_KERNEL).unwrap());
        }
    }

    fn queue(numbers: core::ops::Range<u32>) -> Fifo<u32> {
        let mut fifo = Fifo::new();
        push(&mut fifo, numbers);
        fifo
    }

    /// Returns the next elements, at most two, and whether more may follow.
    fn two(fifo: &mut Fifo<u32>, walk: &mut Walk<u32>) -> (KVec<u32>, bool) {
        let mut found = KVec::new();
        let more = fifo.walk(walk, 2, |x| {
            found.push(*x, GFP_KERNEL).unwrap();
            true
        });
        (found, more)
    }

    /// Returns the remaining elements, which it visits two by two.
    fn rest(fifo: &mut Fifo<u32>, walk: &mut Walk<u32>) -> KVec<u32> {
        let mut all = KVec::new();
        loop {
            let (found, more) = two(fifo, walk);
            for x in found {
                all.push(x, GFP_KERNEL).unwrap();
            }
            if !more {
                return all;
            }
        }
    }

    #[test]
    fn nothing_changes() {
        assert!(rest(&mut Fifo::new(), &mut Walk::new()).is_empty());
        assert_eq!(
            rest(&mut queue(0..5), &mut Walk::new())[..],
            [0, 1, 2, 3, 4]
        );
        assert_eq!(queue(0..5).len(), 5);
    }

    #[test]
    fn items_pushed_meanwhile_are_left_out() {
        let (mut fifo, mut walk) = (queue(0..3), Walk::new());
        assert_eq!(two(&mut fifo, &mut walk).0[..], [0, 1]);
        push(&mut fifo, 3..9);
        assert_eq!(rest(&mut fifo, &mut walk)[..], [2]);
    }

    #[test]
    fn items_popped_meanwhile_are_gone() {
        for count in 0..7 {
            let (mut fifo, mut walk) = (queue(0..6), Walk::new());
            assert_eq!(two(&mut fifo, &mut walk).0[..], [0, 1]);
            for _ in 0..count {
                drop(fifo.pop_front());
            }
            push(&mut fifo, 6..8);
            let left = rest(&mut fifo, &mut walk);
            assert_eq!(left[..], [2, 3, 4, 5][(count.max(2) - 2).min(4)..]);
        }
    }

    #[test]
    fn items_put_back_are_not_visited_twice() {
        for pops in 1..4 {
            let (mut fifo, mut walk) = (queue(0..6), Walk::new());
            assert_eq!(two(&mut fifo, &mut walk).0[..], [0, 1]);
            let mut taken = KVec::new();
            for _ in 0..pops {
                taken.push(fifo.pop_front().unwrap(), GFP_KERNEL).unwrap();
            }
            while let Some(item) = taken.pop() {
                fifo.push_front(Item::new(*item, GFP_KERNEL).unwrap());
            }
            assert_eq!(fifo.len(), 6);
            assert_eq!(rest(&mut fifo, &mut walk)[..], [2, 3, 4, 5]);
        }
    }

    #[test]
    fn elements_are_removed_from_the_middle() {
        let (mut fifo, mut walk) = (queue(0..9), Walk::new());
        assert_eq!(two(&mut fifo, &mut walk).0[..], [0, 1]);
        let mut out = Fifo::new();
        fifo.extract(|x| x % 3 == 1, &mut out);
        assert_eq!(rest(&mut out, &mut Walk::new())[..], [1, 4, 7]);
        push(&mut fifo, 9..11);
        // The same after more elements were added.
        assert_eq!(two(&mut fifo, &mut walk).0[..], [0, 2]);
        push(&mut fifo, 11..12);
        assert_eq!(rest(&mut fifo, &mut walk)[..], [3, 5, 6, 8, 9, 10]);
    }

    /// Takes the multiples of three. Visits two elements at a time and calls `between` after each
    /// step.
    fn take_thirds(fifo: &mut Fifo<u32>, mut between: impl FnMut(&mut Fifo<u32>)) -> Fifo<u32> {
        let (mut out, mut walk) = (Fifo::new(), Walk::new());
        let pick = |x: &mut u32| {
            if *x % 3 == 0 {
                Pick::Take
            } else {
                Pick::Leave
            }
        };
        while fifo.extract_some(&mut walk, 2, pick, &mut out) {
            between(fifo);
        }
        out
    }

    fn all(fifo: &mut Fifo<u32>) -> KVec<u32> {
        rest(fifo, &mut Walk::new())
    }

    #[test]
    fn elements_are_taken_in_pieces() {
        for count in 0..12 {
            let mut fifo = queue(0..count);
            let mut out = take_thirds(&mut fifo, |_| {});
            assert!(all(&mut out).iter().all(|x| x % 3 == 0));
            assert!(all(&mut fifo).iter().all(|x| x % 3 != 0));
            assert_eq!((fifo.len() + out.len()) as u32, count);
            // The queue knows its last element, so pushing works.
            push(&mut fifo, 100..101);
            assert_eq!(all(&mut fifo).last(), Some(&100));
        }
        let mut fifo = queue(0..0);
        for _ in 0..5 {
            push(&mut fifo, 3..4);
        }
        assert_eq!(take_thirds(&mut fifo, |_| {}).len(), 5);
        assert!(fifo.is_empty());
        push(&mut fifo, 7..9);
        assert_eq!(all(&mut fifo)[..], [7, 8]);
    }

    #[test]
    fn elements_are_taken_during_pushes_and_pops() {
        // Elements that were popped or pushed meanwhile are not taken.
        let (mut fifo, mut next) = (queue(0..12), 12);
        let mut out = take_thirds(&mut fifo, |fifo| {
            drop(fifo.pop_front());
            push(fifo, next..next + 1);
            next += 1;
        });
        assert!(all(&mut out).iter().all(|x| x % 3 == 0 && *x < 12));
        assert!(all(&mut fifo).iter().all(|x| x % 3 != 0 || *x >= 12));
        assert_eq!(all(&mut fifo).last(), Some(&(next - 1)));

        // Elements that were put back are skipped, because the walk has visited them.
        let mut fifo = queue(0..9);
        let mut out = take_thirds(&mut fifo, |fifo| {
            if let Some(first) = fifo.pop_front() {
                fifo.push_front(first);
            }
        });
        assert_eq!(all(&mut out)[..], [0, 3, 6]);
        assert_eq!(all(&mut fifo)[..], [1, 2, 4, 5, 7, 8]);
    }

    #[test]
    fn no_element_is_looked_at_behind_the_end() {
        for end in 0..7 {
            let (mut fifo, mut out, mut walk) = (queue(0..7), Fifo::new(), Walk::new());
            let mut seen = 0;
            let mut pick = |x: &mut u32| {
                seen = *x + 1;
                match *x {
                    x if x == end => Pick::End,
                    x if x % 3 == 0 => Pick::Take,
                    _ => Pick::Leave,
                }
            };
            while fifo.extract_some(&mut walk, 2, &mut pick, &mut out) {}
            assert_eq!(seen, end + 1);
            assert_eq!(out.len() as u32, end.div_ceil(3));
            assert_eq!(all(&mut fifo).len() as u32, 7 - end.div_ceil(3));
            // The queue knows its last element, so pushing works.
            push(&mut fifo, 100..101);
            assert_eq!(all(&mut fifo).last(), Some(&100));
        }
    }

    #[test]
    fn other_walks_begin_again() {
        let (mut fifo, mut walk) = (queue(0..6), Walk::new());
        assert_eq!(two(&mut fifo, &mut walk).0[..], [0, 1]);
        drop(take_thirds(&mut fifo, |_| {}));
        assert_eq!(rest(&mut fifo, &mut walk)[..], [1, 2, 4, 5]);
    }

    #[test]
    fn a_walk_stops_on_request() {
        let (mut fifo, mut walk, mut seen) = (queue(0..5), Walk::new(), 0);
        let more = fifo.walk(&mut walk, 5, |x| {
            seen += 1;
            *x < 2
        });
        assert_eq!((more, seen), (false, 3));
    }

    #[test]
    fn another_queue_takes_all() {
        let (mut fifo, mut walk) = (queue(0..4), Walk::new());
        assert_eq!(two(&mut fifo, &mut walk).0[..], [0, 1]);
        let mut other = queue(7..8);
        other.append(&mut fifo);
        assert_eq!((fifo.len(), other.len()), (0, 5));
        assert!(rest(&mut fifo, &mut walk).is_empty());
        assert_eq!(rest(&mut other, &mut Walk::new())[..], [7, 0, 1, 2, 3]);
    }
}
