# cython: annotation_typing=False
"""Encode and decode one record in a Memory (format.py declares the bytes).

`write_header` and `read_header` are the hot pair: five words and one checksum. The optional
fields travel as ready-made bytes (fields.py).
"""

from persist import format as _format
from persist.errors import CorruptRecord, UnknownFormat
from persist.prim import Memory, crc32c

_HEADER_BYTES = _format.RECORD.itemsize
_CRC_AT = _format.offset(_format.RECORD, "header_crc")
_CRC_BYTES = _format.BODY_CRC_BYTES
_MAGIC = _format.MAGIC
_VERSION = _format.VERSION
_PAD_MARK = _format.PAD_MARK
_U32 = 0xFFFFFFFF  # a typed name: as a literal it is no C integer to Cython

HEADER_BYTES = _HEADER_BYTES


def record_bytes(fields_bytes: int, body_bytes: int) -> int:
    """How many bytes a record takes, padding and both checksums included."""
    return (_HEADER_BYTES + fields_bytes + body_bytes + _CRC_BYTES + 7) & ~7


class Header:
    """The fixed header of one record, as read_header leaves it; reused from call to call."""

    __slots__ = (
        "body_bytes", "fields_bytes", "flags", "kind", "lane", "raw_bytes", "seq", "timestamp",
    )  # fmt: skip

    def __init__(self) -> None:
        self.kind = self.flags = self.lane = self.fields_bytes = 0
        self.body_bytes = self.raw_bytes = self.seq = self.timestamp = 0


def write_header(
    memory: Memory,
    at: int,
    start: int,
    kind: int,
    flags: int,
    lane: int,
    fields_bytes: int,
    body_bytes: int,
    raw_bytes: int,
    seq: int,
    timestamp: int,
) -> None:
    """Write the fixed header at byte `at`; the optional fields must already lie behind it.

    `start` is `prim.seed(salt, position)`. The caller has checked the lengths.
    """
    index = at >> 3
    memory.store(index, _MAGIC | (_VERSION << 32) | (kind << 40) | (flags << 48))
    memory.store(index + 1, lane | (fields_bytes << 16) | (body_bytes << 32))
    memory.store(index + 2, seq)
    memory.store(index + 3, timestamp)
    memory.store(index + 4, raw_bytes)
    check = memory.crc(at, _CRC_AT, start)
    if fields_bytes:
        check = memory.crc(at + _HEADER_BYTES, fields_bytes, check)
    memory.store(index + 4, raw_bytes | (check << 32))


def read_header(memory: Memory, at: int, limit: int, start: int, header: Header) -> None:
    """Read and check the header at byte `at` into `header`; the record must end by `limit`.

    Raises CorruptRecord or UnknownFormat; every length is checked before it is used.
    """
    if at & 7 or limit > memory.size or at + _HEADER_BYTES > limit:
        raise CorruptRecord(f"no record fits at byte {at} before byte {limit}")
    index = at >> 3
    word = memory.load(index)
    sizes = memory.load(index + 1)
    last = memory.load(index + 4)
    fields_bytes = (sizes >> 16) & 0xFFFF
    body_bytes = sizes >> 32
    if (word & _U32) != _MAGIC:
        raise CorruptRecord(f"no record starts at byte {at}")
    if at + ((_HEADER_BYTES + fields_bytes + body_bytes + _CRC_BYTES + 7) & ~7) > limit:
        raise CorruptRecord(f"the record at byte {at} claims to end behind byte {limit}")
    check = memory.crc(at, _CRC_AT, start)
    if fields_bytes:
        check = memory.crc(at + _HEADER_BYTES, fields_bytes, check)
    if check != (last >> 32):
        raise CorruptRecord(f"the header at byte {at} fails its checksum")
    if ((word >> 32) & 0xFF) != _VERSION:
        raise UnknownFormat(f"the record at byte {at} has version {(word >> 32) & 0xFF}")
    header.kind = (word >> 40) & 0xFF
    header.flags = word >> 48
    header.lane = sizes & 0xFFFF
    header.fields_bytes = fields_bytes
    header.body_bytes = body_bytes
    header.raw_bytes = last & _U32
    header.seq = memory.load(index + 2)
    header.timestamp = memory.load(index + 3)


def write_body_crc(memory: Memory, at: int, body_bytes: int) -> None:
    """Write the checksum behind the body that lies at byte `at`, and the zeros after it."""
    check = memory.crc(at, body_bytes, 0)
    end = at + body_bytes
    memory.copy_in(end, check.to_bytes(4, "little") + bytes(-(end + 4) & 7))


def check_body(memory: Memory, at: int, body_bytes: int) -> None:
    """Raise CorruptRecord unless the body at byte `at` matches the checksum behind it."""
    stored = int.from_bytes(memory.copy_out(at + body_bytes, 4), "little")
    if memory.crc(at, body_bytes, 0) != stored:
        raise CorruptRecord(f"the body at byte {at} fails its checksum")


def write_pad(memory: Memory, at: int, pad_bytes: int, start: int) -> None:
    """Fill pad_bytes (a multiple of 8) from byte `at` with a PAD."""
    if pad_bytes < 8 or pad_bytes & 7:
        raise ValueError(f"a PAD cannot have {pad_bytes} bytes")
    word = (pad_bytes | _PAD_MARK).to_bytes(4, "little")
    memory.copy_in(at, word + crc32c(word, start).to_bytes(4, "little") + bytes(pad_bytes - 8))


def read_pad(memory: Memory, at: int, limit: int, start: int) -> int:
    """The length of the PAD at byte `at`; 0 if there is none; CorruptRecord if it is damaged."""
    word = memory.copy_out(at, 4)
    length = int.from_bytes(word, "little")
    if (length & 7) != _PAD_MARK:
        return 0
    length -= _PAD_MARK
    if length < 8 or at + length > limit:
        raise CorruptRecord(f"the PAD at byte {at} claims {length} bytes")
    if int.from_bytes(memory.copy_out(at + 4, 4), "little") != crc32c(word, start):
        raise CorruptRecord(f"the PAD at byte {at} fails its checksum")
    if any(memory.copy_out(at + 8, length - 8)):
        raise CorruptRecord(f"the PAD at byte {at} is not filled with zeros")
    return length
