"""One record: its exact bytes, and what happens when they are not what they should be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persist import CorruptRecord, UnknownFormat, format
from persist.fields import Fields
from persist.prim import Memory, crc32c, seed
from persist.record import (
    HEADER_BYTES,
    Header,
    check_body,
    raw_bytes,
    read_header,
    read_pad,
    record_bytes,
    write_body_crc,
    write_header,
    write_pad,
)

SALT = 0x0123456789ABCDEF
BODY = b"hello, log"


def written(position: int = 64, flags: int = 0, packed: bytes = b"") -> tuple[bytearray, Memory]:
    """A record at its position in 512 bytes of memory."""
    buffer = bytearray(512)
    memory = Memory(buffer)
    memory.copy_in(position + HEADER_BYTES, packed)
    memory.copy_in(position + HEADER_BYTES + len(packed), BODY)
    write_header(
        memory, position, seed(SALT, position), format.DATA, flags, 2, len(packed),
        len(BODY), len(BODY), 7, 1_700_000_000_000_000_000,
    )  # fmt: skip
    write_body_crc(memory, position + HEADER_BYTES + len(packed), len(BODY))
    return buffer, memory


def read(memory: Memory, at: int = 64, position: int = 64) -> Header:
    header = Header()
    read_header(memory, at, 512, seed(SALT, position), header)
    return header


def test_the_bytes_of_a_record_never_change() -> None:
    buffer, _ = written()
    assert bytes(buffer[64 : 64 + record_bytes(0, len(BODY))]).hex(" ", -8) == (
        "52484d5101010000 020000000a000000 0700000000000000 00002a36fe9c9717 "
        "0a0000002a2f7a68 68656c6c6f2c206c 6f67666efb990000"
    )
    assert crc32c(b"123456789") == 0xE3069283


def test_a_record_reads_back_as_written() -> None:
    _, memory = written()
    header = read(memory)
    assert raw_bytes(memory, 64) == 10
    assert (header.kind, header.flags, header.lane, header.seq) == (format.DATA, 0, 2, 7)
    assert (header.body_bytes, header.fields_bytes) == (10, 0)
    assert header.timestamp == 1_700_000_000_000_000_000


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    flags, packed = Fields(key=b"k", headers=(("a", "b"),)).pack()
    buffer, memory = written(flags=flags, packed=packed)
    for byte in range(64, 64 + HEADER_BYTES + len(packed)):
        for bit in range(8):
            buffer[byte] ^= 1 << bit
            with pytest.raises((CorruptRecord, UnknownFormat)):
                read(memory)
            buffer[byte] ^= 1 << bit
    read(memory)


def test_every_flipped_bit_of_a_body_is_noticed() -> None:
    buffer, memory = written()
    start = 64 + HEADER_BYTES
    check_body(memory, start, len(BODY))
    for byte in range(start, start + len(BODY) + 4):
        buffer[byte] ^= 4
        with pytest.raises(CorruptRecord):
            check_body(memory, start, len(BODY))
        buffer[byte] ^= 4


def test_a_record_moved_or_of_another_log_does_not_validate() -> None:
    _, memory = written()
    with pytest.raises(CorruptRecord):
        read(memory, position=64 + 4096)
    with pytest.raises(CorruptRecord):
        read_header(memory, 64, 512, seed(SALT + 1, 64), Header())


def test_a_length_beyond_the_limit_is_refused_before_it_is_used() -> None:
    _, memory = written()
    with pytest.raises(CorruptRecord):
        read_header(memory, 64, 100, seed(SALT, 64), Header())
    with pytest.raises(CorruptRecord):
        read_header(memory, 480, 512, seed(SALT, 480), Header())


def test_a_whole_record_of_a_newer_version_is_called_so() -> None:
    buffer, memory = written()
    buffer[64 + 4] = format.VERSION + 1
    check = crc32c(buffer[64 : 64 + 36], seed(SALT, 64))
    buffer[64 + 36 : 64 + 40] = check.to_bytes(4, "little")
    with pytest.raises(UnknownFormat):
        read(memory)


@pytest.mark.parametrize("size", [8, 16, 40, 128])
def test_a_pad_reads_back_and_every_damage_is_noticed(size: int) -> None:
    buffer = bytearray(256)
    memory = Memory(buffer)
    write_pad(memory, 64, size, seed(SALT, 64))
    assert read_pad(memory, 64, 256, seed(SALT, 64)) == size
    with pytest.raises(CorruptRecord):
        read_pad(memory, 64, 256, seed(SALT, 72))
    for byte in range(64, 64 + size):
        buffer[byte] ^= 0x40
        with pytest.raises(CorruptRecord):
            read_pad(memory, 64, 256, seed(SALT, 64))
        buffer[byte] ^= 0x40


def test_a_record_is_not_taken_for_a_pad() -> None:
    _, memory = written()
    assert read_pad(memory, 64, 512, seed(SALT, 64)) == 0


text = st.text(max_size=20)
fields = st.builds(
    Fields,
    expires_at=st.integers(0, 2**64 - 1),
    deliver_at=st.integers(0, 2**64 - 1),
    dedup=st.sampled_from([b"", b"d" * 16]),
    trace=st.sampled_from([b"", b"t" * 16]),
    codec=st.integers(0, 2**16 - 1),
    compression=st.integers(0, 2**16 - 1),
    key=st.none() | st.binary(max_size=40),
    headers=st.lists(st.tuples(text, text | st.binary(max_size=20)), max_size=4).map(tuple),
)


@given(fields)
def test_optional_fields_read_back_as_written(value: Fields) -> None:
    flags, packed = value.pack()
    assert len(packed) % 8 == 0
    assert Fields.unpack(flags, packed) == value


@settings(max_examples=300)
@given(st.integers(0, 2**16 - 1), st.binary(max_size=80))
def test_garbage_for_optional_fields_is_a_named_error(flags: int, packed: bytes) -> None:
    try:
        Fields.unpack(flags, packed)
    except (CorruptRecord, UnknownFormat):
        pass


def test_fields_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="fit"):
        Fields(key=bytes(70_000)).pack()
    with pytest.raises(ValueError, match="dedup"):
        Fields(dedup=b"short")
