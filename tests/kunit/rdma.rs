// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of RDMA: keys, arguments of programs, and the MRs that a device keeps.

use kernel::prelude::*;

#[kunit_tests(rds_rdma)]
mod suite {
    use crate::{
        ib_transport::mr::free_list::MrFreeList,
        kapi::{
            errno::Errno,
            rdma::{
                Access,
                DeviceId,
                WcStatus, //
            }, //
        },
        msg::OpStatus,
        proto::{
            exthdr,
            rdma::*, //
        },
        rdma_mem::{
            MrDevice,
            RemoteMemory, //
        },
        socket::{
            Ending,
            Memory, //
        },
        uapi::rdma::*, //
    };
    use kernel::{
        prelude::*,
        sync::Arc, //
    };

    /// Argument bytes of a program: numbers, one after the other.
    fn words<const N: usize>(numbers: &[u64]) -> [u8; N] {
        let mut bytes = [0; N];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn transfer(numbers: [u64; 7]) -> core::result::Result<Transfer, ArgError> {
        Transfer::parse(&words(&numbers))
    }

    #[test]
    fn keys_and_where_they_count_from() {
        let cookie = Cookie::from_bits(0x0000_0fff_1234_5600);
        assert_eq!((cookie.rkey, cookie.offset), (0x1234_5600, 0xfff));
        assert_eq!(cookie.to_bits(), 0x0000_0fff_1234_5600);

        // Address 4,095 bytes further, and one byte beyond 64 bits.
        let read = |address| transfer([cookie.to_bits(), address, 1, 0, 1, 0, 0]);
        assert_eq!(read(1).and_then(|it| it.remote_address()), Ok(0x1000));
        let wraps = read(u64::MAX - 0xfff).and_then(|it| it.remote_address());
        assert_eq!(wraps, Err(ArgError::Invalid));
    }

    #[test]
    fn keys_go_with_messages() {
        let extras = RdmaExthdrs {
            memory: Some(Cookie { rkey: 1, offset: 2 }),
            used: Some(3),
        };
        assert_eq!(RdmaExthdrs::read(&extras.emit()), Some(extras));
        assert_eq!(RdmaExthdrs::read(&[0; exthdr::SPACE]), None);
    }

    #[test]
    fn limits_of_transfers() {
        let refused = |bytes, count| transfer([1, 0, bytes, 0, count, 0, 0]).err();
        assert_eq!(refused(MAX_BYTES, MAX_LOCAL), None);
        assert_eq!(refused(MAX_BYTES + 1, 1), Some(ArgError::TooLarge));
        assert_eq!(refused(1, MAX_LOCAL + 1), Some(ArgError::TooLarge));
        assert_eq!(refused(1, 0), Some(ArgError::Invalid));
    }

    #[test]
    fn masks() {
        let change = |kind, numbers: [u64; 9]| {
            let bytes: [u8; AtomicArgs::LEN] = words(&numbers);
            AtomicArgs::parse(kind, &bytes).map(|it| it.change.is_masked())
        };
        let all = [1, 0, 0, 5, 6, u64::MAX, u64::MAX, 0, 0];
        assert_eq!(change(AtomicKind::FetchAdd, all), Some(false));
        assert_eq!(change(AtomicKind::CompareSwap, all), Some(false));
        assert_eq!(change(AtomicKind::MaskedCompareSwap, all), Some(false));
        assert_eq!(change(AtomicKind::MaskedFetchAdd, all), Some(true));
    }

    #[test]
    fn ends_of_operations() {
        let bytes = notification(7, Status::Canceled);
        assert_eq!(bytes, words(&[7, 2]));
        assert_eq!(Status::from_number(4), Some(Status::OtherError));
        assert_eq!(Status::from_number(5), None);
        assert_eq!(Status::from_number(-1), None);
    }

    /// A device that does nothing.
    struct Device(u32);

    impl MrDevice for Device {
        fn id(&self) -> DeviceId {
            DeviceId(self.0)
        }

        fn flush(&self) {}

        fn is_removed(&self) -> bool {
            self.0 == GONE
        }
    }

    const GONE: u32 = 9;

    /// Memory with a device's key, at an offset in its page.
    struct Piece(Arc<Device>, Cookie);

    impl Piece {
        fn boxed(device: u32, cookie: Cookie) -> Result<KBox<Self>> {
            let mr_device = Arc::new(Device(device), GFP_KERNEL)?;
            Ok(KBox::new(Self(mr_device, cookie), GFP_KERNEL)?)
        }
    }

    impl RemoteMemory for Piece {
        fn cookie(&self) -> Cookie {
            self.1
        }

        fn mr_device(&self) -> Arc<dyn MrDevice> {
            self.0.clone()
        }
    }

    const KEY: u32 = 0x1234;

    fn at(offset: u32) -> Cookie {
        Cookie { rkey: KEY, offset }
    }

    fn ending(once: bool) -> Ending {
        Ending {
            once,
            at_once: false,
        }
    }

    /// Returns the memory of a socket with regions: device, offset, `true` for one use. All have
    /// the same key.
    fn registered(all: &[(u32, u32, bool)]) -> Result<Pin<KBox<Memory>>> {
        let memory = KBox::pin_init(Memory::new(), GFP_KERNEL)?;
        for (device, offset, once) in all {
            memory.add(Piece::boxed(*device, at(*offset))?, ending(*once))?;
        }
        Ok(memory)
    }

    /// Returns the devices of the regions that are released when a program frees the cookies.
    fn freed<const N: usize>(memory: &Memory, cookies: [Cookie; N]) -> [Option<u32>; N] {
        cookies.map(|cookie| memory.remove(cookie).map(|(mr_device, _)| mr_device.id().0))
    }

    #[test]
    fn a_key_of_two_devices_is_two_regions() -> Result {
        let memory = registered(&[(1, 0, false), (2, 0, false), (3, 7, false)])?;
        assert!(memory.has(at(0)) && memory.has(at(1)));
        // The latest region at this offset goes first, then the latest at any offset.
        let found = freed(&memory, [at(0), at(0), at(0), at(0)]);
        assert_eq!(found, [Some(2), Some(1), Some(3), None]);
        let other = Cookie {
            rkey: KEY + 1,
            offset: 0,
        };
        let memory = registered(&[(1, 0, false)])?;
        assert_eq!(freed(&memory, [other, at(5)]), [None, Some(1)]);
        memory.close();
        Ok(())
    }

    #[test]
    fn a_region_that_a_peer_has_used_is_freed_on_its_device() -> Result {
        let memory = registered(&[(1, 0, true), (2, 0, true), (3, 0, false)])?;
        for device in [4, 3, 1, 1] {
            memory.used(DeviceId(device), KEY);
        }
        memory.used(DeviceId(2), KEY + 1);
        assert_eq!(freed(&memory, [at(0); 3]), [Some(3), Some(2), None]);
        memory.close();
        Ok(())
    }

    #[test]
    fn a_region_used_before_the_address_moved_is_freed() -> Result {
        let memory = registered(&[(1, 0, true)])?;
        memory.used(DeviceId(2), KEY + 1);
        memory.used(DeviceId(2), KEY);
        assert_eq!(freed(&memory, [at(0); 1]), [None]);
        let memory = registered(&[(1, 0, false)])?;
        memory.used(DeviceId(2), KEY);
        assert_eq!(freed(&memory, [at(0); 1]), [Some(1)]);
        Ok(())
    }

    #[test]
    fn undoing_a_registration_frees_no_other_region() -> Result {
        let memory = registered(&[(1, 0, false)])?;
        let key = memory.add(Piece::boxed(2, at(0))?, ending(false))?;
        memory.add(Piece::boxed(3, at(0))?, ending(false))?;
        memory.undo(key);
        assert_eq!(freed(&memory, [at(0); 3]), [Some(3), Some(1), None]);
        memory.close();
        let late = memory.add(Piece::boxed(2, at(0))?, ending(false));
        assert_eq!(late.err(), Some(EBADF));
        Ok(())
    }

    #[test]
    fn devices_that_are_waited_for() -> Result {
        let memory = registered(&[(GONE, 0, false), (1, 0, false), (1, 1, false)])?;
        let mr_devices = |memory: &Memory| -> Result<usize> { Ok(memory.mr_devices()?.len()) };
        // The region of the removed device was forgotten when another one was added.
        assert_eq!(mr_devices(&memory)?, 1);
        memory.add(Piece::boxed(2, at(0))?, ending(false))?;
        assert_eq!(mr_devices(&memory)?, 2);
        memory.close();
        assert_eq!(mr_devices(&memory)?, 0);
        Ok(())
    }

    /// `enum ib_access_flags`.
    const LOCAL_WRITE: i32 = 1;
    const REMOTE_WRITE: i32 = 2;
    const REMOTE_READ: i32 = 4;
    const REMOTE_ATOMIC: i32 = 8;

    #[test]
    fn peers_have_the_access_that_a_region_grants() {
        let writable = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;
        assert_eq!(Access::Readable.flags(), REMOTE_READ);
        assert_eq!(PLAIN.flags(), writable);
        assert_eq!(WHOLE.flags(), writable | REMOTE_ATOMIC);
        // Peers have no access to local memory of an operation. Only on iWARP does the peer write
        // the data of a read itself.
        assert_eq!(Access::Source.flags(), 0);
        assert_eq!(Access::Sink { by_peer: false }.flags(), LOCAL_WRITE);
        let brought = Access::Sink { by_peer: true };
        assert_eq!(brought.flags(), LOCAL_WRITE | REMOTE_WRITE);
    }

    const PLAIN: Access = Access::Writable { atomics: false };
    const WHOLE: Access = Access::Writable { atomics: true };
    const OF_OPERATIONS: [Access; 3] = [
        Access::Source,
        Access::Sink { by_peer: false },
        Access::Sink { by_peer: true },
    ];

    #[test]
    fn only_atomics_can_be_done_without() {
        assert_eq!(WHOLE.without_atomics(), Some(PLAIN));
        assert_eq!(PLAIN.without_atomics(), None);
        assert_eq!(Access::Readable.without_atomics(), None);
        assert_eq!(OF_OPERATIONS.map(Access::without_atomics), [None; 3]);
    }

    #[test]
    fn peers_use_their_regions_at_any_time() {
        assert_eq!(
            [Access::Readable, PLAIN, WHOLE].map(Access::is_of_peers),
            [true; 3]
        );
        assert_eq!(OF_OPERATIONS.map(Access::is_of_peers), [false; 3]);
    }

    /// `enum ib_wc_status`.
    const LOCAL_PROTECTION: WcStatus = WcStatus(4);
    const FLUSHED: WcStatus = WcStatus(5);
    const REMOTE_ACCESS: WcStatus = WcStatus(10);
    const RETRIES_EXCEEDED: WcStatus = WcStatus(12);

    /// Returns the status of an operation whose message is queued and whose work requests, up to
    /// the last, end as in `done`.
    fn end(unheard: bool, done: &[WcStatus]) -> Result<Option<Status>> {
        let outcome = OpStatus::new()?;
        outcome.queue();
        for (i, status) in done.iter().enumerate() {
            outcome.done(i + 1 == done.len(), unheard, *status);
        }
        Ok(outcome.get())
    }

    #[test]
    fn no_notification_before_the_message_is_queued() -> Result {
        let outcome = OpStatus::new()?;
        assert_eq!(outcome.get(), None);
        outcome.queue();
        assert_eq!(outcome.get(), Some(Status::Dropped));
        outcome.cancel();
        assert_eq!(outcome.get(), Some(Status::Canceled));
        Ok(())
    }

    #[test]
    fn the_last_work_request_decides() -> Result {
        const WELL: WcStatus = WcStatus::SUCCESS;
        assert_eq!(end(false, &[WELL, WELL])?, Some(Status::Success));
        assert_eq!(end(false, &[WELL, FLUSHED])?, Some(Status::Dropped));
        assert_eq!(end(false, &[FLUSHED, FLUSHED])?, Some(Status::Dropped));
        let outcome = OpStatus::new()?;
        outcome.queue();
        outcome.done(false, false, WELL);
        assert_eq!(outcome.get(), Some(Status::Dropped));
        Ok(())
    }

    #[test]
    fn a_later_flush_hides_no_error() -> Result {
        assert_eq!(
            end(false, &[REMOTE_ACCESS, FLUSHED])?,
            Some(Status::RemoteError)
        );
        assert_eq!(
            end(false, &[LOCAL_PROTECTION, FLUSHED])?,
            Some(Status::OtherError)
        );
        assert_eq!(
            end(false, &[RETRIES_EXCEEDED, FLUSHED])?,
            Some(Status::OtherError)
        );
        Ok(())
    }

    #[test]
    fn a_local_completion_waits_for_the_acknowledgement() -> Result {
        assert_eq!(end(true, &[WcStatus::SUCCESS])?, Some(Status::Dropped));
        assert_eq!(end(true, &[REMOTE_ACCESS])?, Some(Status::RemoteError));
        let outcome = OpStatus::new()?;
        outcome.queue();
        outcome.done(true, true, WcStatus::SUCCESS);
        outcome.acknowledge();
        assert_eq!(outcome.get(), Some(Status::Success));
        Ok(())
    }

    #[test]
    fn an_operation_that_a_peer_does_not_serve_is_an_error() -> Result {
        let outcome = OpStatus::new()?;
        outcome.queue();
        outcome.refuse();
        assert_eq!(outcome.get(), Some(Status::OtherError));
        Ok(())
    }

    #[test]
    fn spares_are_of_two_kinds() -> Result {
        let mut spares = MrFreeList::new(1000)?;
        for (pages, room) in [(1, 3), (3, 3), (4, 257), (257, 257)] {
            assert_eq!(spares.room_for(pages), Ok(room));
        }
        assert_eq!(spares.room_for(258), Err(Errno::MessageTooLong.into()));

        assert_eq!(spares.keep(2, 'a'), None);
        assert_eq!(spares.take(4), None);
        assert_eq!(spares.take(3), Some('a'));
        assert_eq!(spares.take(3), None);
        Ok(())
    }

    #[test]
    fn spares_have_a_limit() -> Result {
        let mut spares = MrFreeList::new(1000)?;
        let kept = (0..100).filter(|i| spares.keep(5, *i).is_none()).count();
        assert_eq!(kept, 64);
        // Each kind has its own limit.
        assert_eq!(spares.keep(1, 100), None);
        let all = core::iter::from_fn(|| spares.take_any()).count();
        assert_eq!(all, 65);
        assert_eq!((spares.take(5), spares.take(1)), (None, None));
        Ok(())
    }

    #[test]
    fn devices_decide() -> Result {
        let none = MrFreeList::<u8>::new(0)?;
        assert_eq!(none.room_for(1), Err(Errno::NotSupported.into()));
        let few = MrFreeList::<u8>::new(16)?;
        assert_eq!(few.room_for(16), Ok(16));
        assert_eq!(few.room_for(17), Err(Errno::MessageTooLong.into()));
        Ok(())
    }
}
