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
# Typed names: as literals they are no C integers to Cython.
_U32 = 0xFFFFFFFF
_FIRST_MASK = 0xFF_FFFFFFFF  # magic and version
_FIRST = _MAGIC | (_VERSION << 32)

HEADER_BYTES = _HEADER_BYTES


def record_bytes(fields_bytes: int, body_bytes: int) -> int:
    """How many bytes a record takes, padding and both checksums included."""
    return (_HEADER_BYTES + fields_bytes + body_bytes + _CRC_BYTES + 7) & ~7


class Header:
    """The fixed header of one record, as read_header leaves it; reused from call to call.

    What every reader needs is taken apart at once, the rest when it is asked for.
    """

    __slots__ = ("body_bytes", "fields_bytes", "first", "lane", "seq", "timestamp")

    def __init__(self) -> None:
        self.first = 0
        self.lane = self.fields_bytes = self.body_bytes = self.seq = self.timestamp = 0

    @property
    def kind(self) -> int:
        """The record's type."""
        return (self.first >> 40) & 0xFF

    @property
    def flags(self) -> int:
        """Which optional fields there are, and MORE."""
        return self.first >> 48


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


def peek_header(memory: Memory, at: int, limit: int, header: Header) -> None:
    """Read the header at byte `at` into `header`, its shape checked, its checksum not.

    For records that never left memory. The record must end by `limit`; every length is
    checked before it is used. Raises CorruptRecord or UnknownFormat.
    """
    if at & 7 or limit > memory.size or at + _HEADER_BYTES > limit:
        raise CorruptRecord(f"no record fits at byte {at} before byte {limit}")
    index = at >> 3
    first = memory.load(index)
    sizes = memory.load(index + 1)
    fields_bytes = (sizes >> 16) & 0xFFFF
    body_bytes = sizes >> 32
    if (first & _FIRST_MASK) != _FIRST:
        _explain(first, at)
    if at + ((_HEADER_BYTES + fields_bytes + body_bytes + _CRC_BYTES + 7) & ~7) > limit:
        raise CorruptRecord(f"the record at byte {at} claims to end behind byte {limit}")
    header.first = first
    header.lane = sizes & 0xFFFF
    header.fields_bytes = fields_bytes
    header.body_bytes = body_bytes
    header.seq = memory.load(index + 2)
    header.timestamp = memory.load(index + 3)


def read_header(memory: Memory, at: int, limit: int, start: int, header: Header) -> None:
    """As peek_header, and the checksum must match, started from `prim.seed(salt, position)`."""
    # A newer version is called so only if its bytes are whole: the checksum comes first.
    if at & 7 or limit > memory.size or at + _HEADER_BYTES > limit:
        raise CorruptRecord(f"no record fits at byte {at} before byte {limit}")
    fields_bytes = (memory.load((at >> 3) + 1) >> 16) & 0xFFFF
    if at + _HEADER_BYTES + fields_bytes > limit:
        raise CorruptRecord(f"the record at byte {at} claims to end behind byte {limit}")
    check = memory.crc(at, _CRC_AT, start)
    if fields_bytes:
        check = memory.crc(at + _HEADER_BYTES, fields_bytes, check)
    if check != (memory.load((at >> 3) + 4) >> 32):
        raise CorruptRecord(f"the header at byte {at} fails its checksum")
    peek_header(memory, at, limit, header)


def raw_bytes(memory: Memory, at: int) -> int:
    """The size before compression of the body of a record whose header was read."""
    return memory.load((at >> 3) + 4) & _U32


def _explain(first: int, at: int) -> None:
    if (first & _U32) != _MAGIC:
        raise CorruptRecord(f"no record starts at byte {at}")
    raise UnknownFormat(f"the record at byte {at} has version {(first >> 32) & 0xFF}")


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
