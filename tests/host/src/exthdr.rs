// SPDX-License-Identifier: GPL-2.0

//! Tests of `proto/exthdr.rs`.

use crate::proto::exthdr::*;
use proptest::prelude::*;

fn read(space: &[u8; SPACE]) -> Vec<Extension> {
    Extensions::new(space).collect()
}

fn write(extensions: &[Extension]) -> [u8; SPACE] {
    let mut writer = ExthdrWriter::new();
    for extension in extensions {
        writer.push(*extension).unwrap();
    }
    writer.finish()
}

fn any_extension() -> impl Strategy<Value = Extension> {
    any::<(u8, u32, u32, u8)>().prop_map(|(kind, a, b, c)| match kind % 9 {
        0 => Extension::Version(a),
        1 => Extension::Rdma { rkey: a },
        2 => Extension::RdmaDest { rkey: a, offset: b },
        3 => Extension::RdmaBytes { bytes: a, flags: c },
        4 => Extension::NPaths(b as u16),
        5 => Extension::GenNum(a),
        6 => Extension::CapBits(a),
        7 => Extension::SportIdx(c),
        _ => Extension::Csum { crc: a, enabled: c },
    })
}

#[test]
fn golden_bytes() {
    let probe = [
        Extension::NPaths(8),
        Extension::GenNum(0x0a0b_0c0d),
        Extension::SportIdx(0),
    ];
    let bytes = [5, 0, 8, 6, 10, 11, 12, 13, 8, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(write(&probe), bytes);
    assert_eq!(read(&bytes), probe);

    let rdma = [
        Extension::Rdma { rkey: 0x0102_0304 },
        Extension::RdmaBytes {
            bytes: 0x1000,
            flags: 2,
        },
    ];
    let bytes = [2, 1, 2, 3, 4, 4, 0, 0, 0x10, 0, 2, 0, 0, 0, 0, 0];
    assert_eq!(write(&rdma), bytes);
    assert_eq!(read(&bytes), rdma);

    let dest = [Extension::RdmaDest { rkey: 1, offset: 2 }];
    let bytes = [3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(write(&dest), bytes);
    assert_eq!(read(&bytes), dest);
}

#[test]
fn reading_stops_at_an_unknown_type() {
    for kind in [0, 10, 15, 16, 255] {
        let mut bytes = write(&[Extension::NPaths(3)]);
        bytes[3] = kind;
        bytes[4] = 8;
        assert_eq!(read(&bytes), [Extension::NPaths(3)]);
    }
}

#[test]
fn reading_stops_at_the_end() {
    // 14 bytes used, and a type that needs more than the one byte left.
    let mut bytes = write(&[
        Extension::GenNum(1),
        Extension::RdmaDest { rkey: 2, offset: 3 },
    ]);
    bytes[14] = 5;
    assert_eq!(read(&bytes).len(), 2);
    // Here the last byte is just enough.
    bytes[14] = 8;
    assert_eq!(read(&bytes)[2], Extension::SportIdx(0));
}

#[test]
fn writing_refuses_an_extension_that_does_not_fit() {
    let mut writer = ExthdrWriter::new();
    writer
        .push(Extension::RdmaDest { rkey: 1, offset: 2 })
        .unwrap();
    let before = writer.clone().finish();
    assert_eq!(
        writer.push(Extension::RdmaDest { rkey: 3, offset: 4 }),
        Err(NoSpace)
    );
    assert_eq!(writer.clone().finish(), before);
    writer.push(Extension::GenNum(7)).unwrap();
    writer.push(Extension::SportIdx(0)).unwrap();
    assert_eq!(writer.push(Extension::SportIdx(0)), Err(NoSpace));
}

proptest! {
    #[test]
    fn arbitrary_space(space in any::<[u8; SPACE]>()) {
        // Types of at most 10 make it likely that reading gets past the first one.
        let small = space.map(|byte| byte % 11);
        for space in [space, small] {
            let found = read(&space);
            prop_assert!(found.len() <= SPACE / 2);
            prop_assert_eq!(read(&write(&found)), found);
        }
    }

    #[test]
    fn round_trip(extensions in prop::collection::vec(any_extension(), 0..10)) {
        let mut writer = ExthdrWriter::new();
        let fit: Vec<_> = extensions.into_iter().filter(|e| writer.push(*e).is_ok()).collect();
        prop_assert_eq!(read(&writer.finish()), fit);
    }
}
