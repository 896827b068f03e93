# SPDX-License-Identifier: GPL-2.0
"""tools/wireshark/rds.lua, run by tshark on captures that these tests compose."""

import random
import re
import struct

import pytest
from capture import A, A6, B, B6, INFINIBAND, TOP, WRITE_ONLY, Capture, frames, reply, roce, tshark

QP_A, QP_B = 0x11, 0x22
LENGTHS = (0, 1, 3, 4, 16, 26, 47, 48, 49, 52, 60, 96, 200, 1000)


@pytest.fixture
def read(tmp_path):
    """Returns a function that returns the values of fields, in a row for each packet of RDS."""
    def read(capture, *names, **options):
        return tshark.rows(capture.write(tmp_path / "test.pcap"), *names, **options)
    return read


@pytest.fixture
def errors(tmp_path):
    """Returns a function that returns the expert information of each packet of RDS."""
    return lambda capture: tshark.errors(capture.write(tmp_path / "test.pcap"))


def to_b(capture, *all_frames):
    for frame in all_frames:
        capture.send(A, B, QP_B, frame)
    return capture


def connected(source=A, target=B):
    """Returns a capture with the request for a connection, and the reply."""
    capture = Capture()
    gids = (roce.gid(source), roce.gid(target))
    private = frames.private(source, target, tos=8, credit=5)
    capture.connection_manager(source, target, roce.request((source, target), private, gids, 1, QP_A, 77))
    capture.connection_manager(target, source, reply(99, 77, QP_B, frames.private(target, source, fragment=4096)))
    return capture


def test_header(read):
    capture = to_b(Capture(), frames.message(2**53 - 1, b"hello", ack=17, sport=4001, dport=4000, flags=6, credit=9))
    names = ("seq", "ack", "len", "sport", "dport", "flags.cong", "flags.ack_required", "flags.retransmitted",
             "credit", "payload", "kind")
    assert read(capture, *(f"af_rds.{x}" for x in names)) == [
        (str(2**53 - 1), "17", "5", "4001", "4000", "0", "1", "1", "9", b"hello".hex(), "Message")]
    # Either port is found by one filter.
    assert len(read(capture, shown="af_rds.port == 4000 && af_rds.port == 4001")) == 1


@pytest.mark.parametrize("kind, fields", (
    ("Congestion update", {"flags": 1, "len": 8192}), ("Acknowledgement", {"ack": 5}),
    ("Heartbeat", {"seq": 1, "flags": 10}), ("Heartbeat answer", {"seq": 1, "flags": 16}),
    ("Keepalive", {"seq": 1, "flags": 2, "len": 1}), ("Multipath probe", {"seq": 1, "sport": 1}),
    ("Multipath answer", {"seq": 1, "dport": 1}), ("Ping", {"seq": 1, "sport": 7}), ("Pong", {"seq": 1, "dport": 7}),
    ("Message", {"seq": 1, "sport": 7, "dport": 8})))
def test_kinds(kind, fields, read):
    capture = to_b(Capture(), frames.header(**fields) + bytes(min(fields.get("len", 0), 4096)))
    assert read(capture, "af_rds.kind")[-1] == (kind,)


EXTENSIONS = {
    1: ("01020304", {"version": "0x01020304"}), 2: ("01020304", {"rkey": "0x01020304"}),
    3: ("0102030405060708", {"rkey": "0x01020304", "offset": "0x05060708"}),
    4: ("0000030002000000", {"bytes": "768", "direction": "2"}), 5: ("0008", {"paths": "8"}),
    6: ("0a0b0c0d", {"generation": "0x0a0b0c0d"}),
    7: ("c0000001", {"capabilities": "0xc0000001", "capabilities.packed": "1", "capabilities.tcp_ack": "1",
                     "capabilities.heartbeat": "1"}),
    8: ("05", {"sport_idx": "5"}), 9: ("0102030401000000", {"crc": "0x01020304", "crc.enabled": "1"})}


@pytest.mark.parametrize("kind", frames.EXTENSIONS)
def test_extensions(kind, read, errors):
    """Each type is read, with another one behind it."""
    data, values = EXTENSIONS[kind]
    ext = frames.extension(kind, bytes.fromhex(data)) + frames.extension(1)
    capture = to_b(Capture(), frames.message(1, sport=7, ext=ext))
    found, = read(capture, "af_rds.ext", *(f"af_rds.ext.{x}" for x in values))
    assert found[0] == f"{kind},1"
    assert [x.split(",")[0] for x in found[1:]] == [*values.values()]
    assert errors(capture) == [set()]


def ports(*congested):
    bits = bytearray(frames.MAP)
    for port in congested:
        bits[port // 8] |= 1 << port % 8
    return bytes(bits)


@pytest.mark.parametrize("size", (4096, 8192))
def test_map(size, read, errors):
    """The ports are those of the map, whose parts are in several packets and in one or two
    frames."""
    congested = (0, 7, 8, 4000, 32767, 32768, 65535)
    capture = to_b(Capture(), *frames.congestion(ports(*congested), size=size, ext=frames.introduction(5, 1 << 31)))
    rows = read(capture, "af_rds.map.port", "af_rds.map.count", shown="af_rds.map")
    assert len(rows) == 8192 // size
    assert ",".join(x for x, _ in rows) == ",".join(map(str, congested))
    assert sum(int(x) for _, x in rows) == len(congested)
    assert set.union(*errors(capture)) == set()


def test_full_map(read):
    """Not all of the ports of a full map are listed, but counted."""
    capture = to_b(Capture(), *frames.congestion(b"\xff" * frames.MAP, size=8192))
    (listed, count), = read(capture, "af_rds.map.port", "af_rds.map.count", shown="af_rds.map")
    assert listed.split(",") == [str(x) for x in range(256)] and count == "65536"


def test_fragments(read, errors):
    payload = bytes(range(256)) * 40
    capture = to_b(Capture(), *frames.fragments(5, payload, sport=4001))
    rows = read(capture, "af_rds.fragment.offset", "af_rds.reassembled.count", "af_rds.payload", shown="af_rds.payload")
    assert [x[0] for x in rows] == ["0", "4096", "8192"]
    assert [x[1] for x in rows] == ["5", "5", "3"]
    assert "".join(x[2] for x in rows) == payload.hex()
    assert set.union(*errors(capture)) == set()


def test_two_passes_show_the_same(tmp_path):
    """Wireshark dissects each packet a second time when it is displayed."""
    capture = to_b(connected(), *frames.congestion(ports(5)), *frames.fragments(9, bytes(9000)))
    path = capture.write(tmp_path / "test.pcap")
    once = tshark.lines(path, "-V")
    assert any("Reliable Datagram Sockets" in x for x in once)
    assert tshark.lines(path, "-V", "-2", "-R", "frame") == once


def test_beginning_is_missing(read, errors):
    """The last fragment of a message has the offset that follows from its length."""
    capture = to_b(Capture(), *frames.fragments(5, bytes(10000))[2:])
    assert read(capture, "af_rds.fragment.offset", shown="af_rds.payload") == [("8192",)]
    assert set.union(*errors(capture)) == set()


@pytest.mark.parametrize("ends", ((A, B), (A6, B6)), ids=("v4", "v6"))
def test_packed(ends, read, errors):
    capture = Capture()
    capture.send(*ends, QP_B, frames.packed(*(frames.message(x, b"x" * x, sport=7) for x in range(1, 12))))
    (seq, length), = read(capture, "af_rds.seq", "af_rds.len")
    assert seq == length == ",".join(str(x) for x in range(1, 12))
    assert errors(capture) == [set()]


@pytest.mark.parametrize("ends", ((A, B), (A6, B6)), ids=("v4", "v6"))
def test_connection_manager(ends, read):
    capture = connected(*ends)
    rejected = roce.rejection(5, 77, 0, 28, private=struct.pack("=I", 1) + b"busy")
    capture.connection_manager(ends[1], ends[0], rejected)
    # Other users of the CM have other services.
    other = roce.request(ends, frames.private(*ends), (roce.gid(A), roce.gid(B)), 1, 9, 78)
    capture.connection_manager(*ends, other.replace(struct.pack("!Q", roce.SERVICE + roce.PORTS[":" in A]), bytes(8)))
    name = "6" if ":" in A6 and ends[0] == A6 else ""
    rows = read(capture, f"af_rds_cm.saddr{name}", f"af_rds_cm.daddr{name}", "af_rds_cm.major", "af_rds_cm.minor",
                "af_rds_cm.minor_mask", "af_rds_cm.tos", "af_rds_cm.fragment_size", "af_rds_cm.credit",
                "af_rds_cm.reject.reason", shown="af_rds_cm")
    assert rows[:2] == [(*ends, "4", "1", "0x0003", "8", "8192", "5", ""),
                        (*ends[::-1], "4", "1", "0x0003", "0", "4096", "0", "")]
    assert rows[2][-1] == "not because of the version"
    assert len(rows) == (3 if ends[0] == A else 4)


def test_infiniband(read, errors):
    """The packets of InfiniBand itself have no addresses of IP."""
    capture = Capture(INFINIBAND)
    for frame in (*frames.congestion(ports(3)), frames.message(1, b"four", sport=7)):
        capture.send("1", "2", QP_B, frame)
    assert read(capture, "af_rds.map.port", shown="af_rds.map.port") == [("3",)]
    assert read(capture, "af_rds.payload", shown="af_rds.payload") == [(b"four".hex(),)]
    assert set.union(*errors(capture)) == set()


@pytest.mark.parametrize("port, ends", ((18634, (A, B)), (16385, (A6, B6))), ids=("v4", "v6"))
@pytest.mark.parametrize("enhanced", (False, True))
def test_iwarp(port, ends, enhanced, read, errors):
    capture = Capture()
    there, back = (*ends, 40000, port), (*ends[::-1], port, 40000)
    capture.mpa(*there, frames.private(*ends, tos=4), enhanced=enhanced)
    capture.mpa(*back, frames.private(*ends[::-1], tos=4), reply=True, enhanced=enhanced)
    for flow in (there, back):
        for frame in (*frames.congestion(ports(9), size=8192), frames.message(1, b"hello", sport=7)):
            capture.iwarp_send(*flow, frame)
    name = "6" if port == 16385 else ""
    rows = read(capture, f"af_rds_cm.saddr{name}", "af_rds_cm.tos", "af_rds_cm.fragment_size", shown="af_rds_cm")
    assert rows == [(ends[0], "4", "8192"), (ends[1], "4", "8192")]
    assert read(capture, "af_rds.map.port", shown="af_rds.map.port") == [("9",)] * 2
    assert read(capture, "af_rds.payload", shown="af_rds.payload") == [(b"hello".hex(),)] * 2
    assert set.union(*errors(capture)) == set()


def test_iwarp_without_its_beginning(read):
    """Frames of iWARP are not taken for RDS over TCP, which has the same port."""
    capture = Capture()
    for _ in range(3):
        capture.iwarp_send(A6, B6, 40000, 16385, frames.message(1, b"hello", sport=7))
    assert read(capture, shown="tcp && !af_rds") == [("1",), ("2",), ("3",)]


@pytest.mark.parametrize("size", (1, 47, 1000, 60000))
@pytest.mark.parametrize("ends", ((A, B), (A6, B6)), ids=("v4", "v6"))
def test_tcp(ends, size, read, errors):
    """Messages over TCP are whole, wherever its segments begin."""
    length = 300 if size == 1 else 1 << 20 if size == 60000 else 10000
    probe = frames.message(1, sport=1, ext=frames.extension(5, b"\0\10") + frames.extension(6, b"abcd"))
    data = [probe, frames.message(2, b"x" * length, sport=4001, dport=4000), frames.message(3, b"y", sport=7)]
    if size > 1:
        data.append(frames.congestion(ports(4, 65535), size=8192)[0])
    capture = Capture()
    capture.stream(*ends, 40000, 16385, b"".join(data), size)
    # C RDS ignores a congestion update without a map, so it is an acknowledgement.
    answers = frames.message(1, sport=0, dport=1, ext=frames.extension(5)) + frames.header(ack=3, flags=frames.CONG)
    capture.stream(*ends[::-1], 16385, 40000, answers, size)
    found = ",".join(x for x, in read(capture, "af_rds.kind")).split(",")
    wanted = ["Multipath probe", "Message", "Ping", "Congestion update"][:len(data)]
    assert found == [*wanted, "Multipath answer", "Acknowledgement"]
    assert ",".join(x for x, in read(capture, "af_rds.ext.paths", shown="af_rds.ext.paths")) == "8,0"
    if size > 1:
        assert read(capture, "af_rds.map.port", shown="af_rds.map.port") == [("4,65535",)]
    assert set.union(*errors(capture)) == set()


def valid():
    """Returns a message by which a queue pair is known."""
    return frames.message(1, b"", sport=7)


TOO_FEW, NO_FIT = "%d bytes are too few for a header", "%d bytes do not fit a message of %d bytes"
BAD = {
    "short": ([bytes(40)], TOO_FEW % 40),
    "length": ([frames.message(2, b"x", len=(1 << 20) + 1)], "The message is too long"),
    "largest-length": ([frames.message(2, b"x", len=2**32 - 1)], "The message is too long"),
    "map": ([frames.congestion(bytes(4096), len=4096)[0]], "A congestion map has 8192 bytes"),
    "checksum": ([frames.message(2, sport=7, checksum=1)], "The checksum is wrong"),
    "flags": ([frames.message(2, sport=7, flags=0xC0)], "Unknown flags"),
    "extension": ([frames.message(2, sport=7, ext=b"\x0a")], "Unknown extension, which hides all behind it"),
    "extension-at-end": ([frames.message(2, sport=7, ext=frames.extension(3) + frames.extension(4))],
                         "The extension ends beyond the header"),
    "cut-message": ([frames.message(2, b"xx", len=3)], NO_FIT % (2, 3)),
    "fragment": ([frames.message(2, bytes(1000), len=9000)], NO_FIT % (1000, 9000)),
    "second-fragment": ([frames.message(2, bytes(4096), len=9000), frames.message(2, bytes(100), len=9000)],
                        NO_FIT % (100, 9000)),
    "acknowledgement": ([frames.header() + bytes(60)], NO_FIT % (60, 0)),
    "bytes-behind": ([frames.message(2, b"x") + bytes(7)], "Bytes follow the last message"),
    "packed-short": ([frames.packed(frames.message(2, b"x"), bytes(20))], TOO_FEW % 20),
    "packed-cut": ([frames.packed(frames.message(2, b"x"), frames.message(3, b"x", len=5))],
                   "The last message of the frame is incomplete"),
    "packed-long": ([frames.packed(*(frames.message(x, bytes(500)) for x in range(2, 12)))],
                    "A frame with several messages is too long"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_frames(name, errors):
    """Each frame that breaks a rule says so, once."""
    bad, message = BAD[name]
    found = errors(to_b(Capture(), valid(), *bad))
    assert found[0] == set() and found[-1] == {message}, found


@pytest.mark.parametrize("name, message", (
    ("length", "The message is too long"), ("checksum", "The checksum is wrong"), ("map", "A congestion map has 8192 bytes"),
    ("extension", "Unknown extension, which hides all behind it")))
def test_bad_messages_over_tcp(name, message, errors):
    capture = Capture()
    capture.stream(A, B, 40000, 16385, frames.message(1, b"x", sport=7) + BAD[name][0][0])
    assert message in set.union(*errors(capture))


def test_bad_first_header_over_tcp(errors):
    capture = Capture()
    capture.stream(A, B, 40000, 16385, b"\xfe" * 200)
    assert {"The message is too long", "The checksum is wrong"} <= errors(capture)[0]


@pytest.mark.parametrize("length", (0, 10, 31))
def test_short_private_data(length, errors):
    """A frame of iWARP, unlike a message of the CM, tells the length of its private data."""
    capture = Capture()
    capture.mpa(A, B, 40000, 18634, frames.private(A, B)[:length])
    assert errors(capture) == ([{"Too short for private data of RDS"}] if length else [])


def test_private_data_of_no_version(errors):
    capture = Capture()
    capture.mpa(A, B, 40000, 18634, bytes(32))
    assert errors(capture) == [{"A version that no RDS has"}]


@pytest.mark.parametrize("missing", (1, 3))
def test_lost_packets(missing, errors):
    """A frame with a packet that the capture lacks is not put together."""
    capture = Capture()
    capture.send(A, B, QP_B, frames.message(1, bytes(4000), sport=7))
    del capture.packets[missing]
    found = errors(capture)
    assert found[-1] == ({"Parts of the frame are not in the capture"} if missing < 3 else set())
    assert set.union(*found[:-1]) == set()


def test_cut_by_the_capture(read, errors):
    """Headers of segments that were captured in part are shown. Wireshark itself shows nothing of
    such a packet of RoCE."""
    capture = Capture()
    for cut in (128, 80):
        capture.segment(A, B, 40000 + cut, 16385, frames.message(8, bytes(900), sport=7), cut=cut)
    assert read(capture, "af_rds.seq", "af_rds.len") == [("8", "900"), ("", "")]
    assert errors(capture) == [{"The capture has only the beginning of the packet"}] * 2


def test_connections_of_others(read):
    """Queue pairs without RDS, and operations on memory, are left alone."""
    capture, chance = Capture(), random.Random(1)
    for _ in range(200):
        capture.send(A, B, 0x99, chance.randbytes(chance.choice((48, 64, 500, 3000))))
    capture.transport(A, B, WRITE_ONLY, QP_B, bytes(16) + frames.message(1, sport=7))
    assert read(capture, "frame.number") == []


def noise(chance):
    """Returns random bytes, a frame with random changes, or a random part of one."""
    length = chance.choice((*LENGTHS, chance.randrange(5000)))
    if chance.random() < 0.3:
        return chance.randbytes(length)
    frame = bytearray(chance.choice((
        frames.message(chance.randrange(99), bytes(length % 600), sport=7, ext=chance.randbytes(16)),
        frames.congestion(chance.randbytes(frames.MAP))[0], frames.header(flags=1, len=8192) + chance.randbytes(length),
        frames.packed(*(frames.message(x, bytes(x), sport=7) for x in range(9))))))
    for _ in range(chance.randrange(4)):
        frame[chance.randrange(48)] = chance.choice((0, 1, 255, chance.randrange(256)))
    frame = bytes(frame)
    return (frames.fixed(frame) if chance.random() < 0.7 else frame)[:chance.choice((None, length))]


@pytest.mark.parametrize("transport", ("roce", "infiniband", "iwarp", "tcp", "cm", "mpa"))
def test_random_input(transport, tmp_path):
    """Nothing in a packet causes an error in Lua, and the result is the same at the second look."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    capture = Capture(INFINIBAND) if transport == "infiniband" else Capture()
    ends = ("1", "2") if transport == "infiniband" else (A, B)
    if transport in ("roce", "infiniband"):
        capture.send(*ends, QP_B, valid())
    for count in range(400):
        data, port = noise(chance), chance.choice((18634, 16385))
        flow = (A, B, 1024 + count, port)
        if transport in ("roce", "infiniband"):
            opcode = chance.choice((0, 1, 2, 3, 4, 4, 4, 5, 0x16, 0x17, 10))
            cut = chance.choice((None, None, None, chance.randrange(60, 200)))
            capture.transport(*ends, opcode, QP_B, data, cut, chance.choice((None, None, 5)))
        elif transport == "iwarp":
            capture.mpa(*flow, frames.private(A, B) if port == 18634 else frames.private(A6, B6))
            capture.iwarp_send(*flow, data)
        elif transport == "tcp":
            capture.stream(*flow[:3], 16385, data + noise(chance), chance.choice((17, 1400)))
        elif transport == "cm":
            message = bytearray(roce.request((A, B), frames.private(A, B), (roce.gid(A), roce.gid(B)), 1, count + 2, count)
                                if count % 3 else reply(1, count + 1, count, chance.randbytes(100)))
            for _ in range(3):
                message[chance.randrange(24, 256)] = chance.randrange(256)
            capture.connection_manager(A, B, bytes(message)[:chance.choice((None, chance.randrange(24, 256)))])
        else:
            capture.mpa(*flow, data[:512], chance.random() < 0.5, chance.random() < 0.5)
    path = capture.write(tmp_path / "test.pcap")
    once = tshark.lines(path, "-V")
    assert sum("Reliable Datagram Sockets" in x for x in once) > 100
    second = tshark.lines(path, "-V", "-2", "-R", "frame")
    assert [x for x in second if "Reliable" in x] == [x for x in once if "Reliable" in x]


def test_numbers_of_the_protocol():
    """The script has the sizes, ports and flags of the module, and each type of extension."""
    script = tshark.SCRIPT.read_text()
    sources = "".join((TOP / f"proto/{x}.rs").read_text() for x in ("wire", "exthdr", "ib_private"))
    for name in ("PORT_V4", "PORT_V6"):
        number = re.search(rf"const {name}: u16 = (\d+);", sources)[1]
        assert re.search(r"^local PORT_V4, PORT_V6 = (.*)$", script, re.M)[1].split(", ")[name == "PORT_V6"] == number
    kinds = re.findall(r"^const [A-Z_]+: u8 = (\d+);$", (TOP / "proto/exthdr.rs").read_text(), re.M)
    assert re.findall(r"^    \[(\d+)\] = \{ \d", script, re.M) == kinds == [str(x) for x in frames.EXTENSIONS]
    assert set(EXTENSIONS) == set(frames.EXTENSIONS)
