"""The bytes of a record, declared once: the same in shared memory and on disk.

    +---------------------+ position, a multiple of 8
    | RECORD              |   fixed header; header_crc covers it and the optional fields
    +---------------------+
    | optional fields     |   in the order of the flags below, each a multiple of 8 bytes
    +---------------------+
    | body                |   body_bytes
    +---------------------+
    | body crc32c (4)     |   right behind the body, then zeros up to a multiple of 8
    +---------------------+

Little-endian throughout. Both checksums are crc32c. The header's starts from a seed made of
the log's salt and the record's position (`prim.seed`): bytes left over from an earlier lap,
or planted inside a body, do not validate. The body's starts from 0; memory queues leave
it and the padding unset and do not check them.

A PAD fills the space up to a place where a record may start. It can be as short as 8 bytes,
so it has a header of its own: its first word is its length plus PAD_MARK, which no magic
equals because lengths are multiples of 8; then a crc32c of that word from the same seed;
then zeros.

To change a field: raise VERSION, edit the dtype, keep the old reader (`decode_v1`) with a
file in tests/golden/, run `make docs`.
"""

from typing import Any

import numpy as np

MAGIC = 0x514D_4852  # no PAD word equals it: the low three bits of those are PAD_MARK
VERSION = 1
ALIGNMENT = 8
PAD_MARK = 1
BODY_CRC_BYTES = 4

# Types.
DATA = 1  # a message
GAP = 2  # seqs that were never given out; body: GAP_BODY
MARK = 3  # everything before `durable` had been fsynced; body: MARK_BODY

# Flags; the low eight announce an optional field each, in this order.
EXPIRES_AT = 1 << 0  # u8, ns since the epoch
DELIVER_AT = 1 << 1  # u8, ns since the epoch
DEDUP = 1 << 2  # 16 bytes, hash of the dedup id
TRACE = 1 << 3  # 16 bytes, trace id
ENCODING = 1 << 4  # ENCODING_FIELD: codec and compression of the body
KEY = 1 << 5  # u4 length, bytes, zeros up to a multiple of 8
HEADERS = 1 << 6  # u4 length, pairs (u2 name bytes, u1 kind, u4 value bytes, name, value), zeros
KNOWN_FIELDS = (1 << 7) - 1
MORE = 1 << 15  # the next record belongs to the same atomic batch

RECORD: np.dtype[Any] = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "u1"),
        ("type", "u1"),
        ("flags", "<u2"),
        ("lane", "<u2"),
        ("fields_bytes", "<u2"),
        ("body_bytes", "<u4"),
        ("seq", "<u8"),
        ("timestamp", "<u8"),  # ns since the epoch, CLOCK_REALTIME of the producer
        ("raw_bytes", "<u4"),  # of the body before compression; else body_bytes
        ("header_crc", "<u4"),  # over everything before it and the optional fields
    ]
)
PAD: np.dtype[Any] = np.dtype([("length_and_mark", "<u4"), ("crc", "<u4")])
GAP_BODY: np.dtype[Any] = np.dtype([("first", "<u8"), ("last", "<u8")])
MARK_BODY: np.dtype[Any] = np.dtype([("durable", "<u8"), ("epoch", "<u8")])
ENCODING_FIELD: np.dtype[Any] = np.dtype(
    [("codec", "<u2"), ("compression", "<u2"), ("reserved", "<u4")]
)

FIELDS_BYTES_MAX = 0xFFF8
BODY_BYTES_MAX = 0xFFFF_FFF0


def offset(dtype: np.dtype[Any], field: str) -> int:
    """Where a field lies, in bytes."""
    assert dtype.fields is not None
    return int(dtype.fields[field][1])


def table(dtype: np.dtype[Any]) -> str:
    """A dtype as a Markdown table; docs/formats.md holds the output and a test compares."""
    assert dtype.names is not None
    assert dtype.fields is not None
    rows = ["| offset | bytes | type | field |", "| --: | --: | --- | --- |"]
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        shown = kind.base.str.lstrip("|")
        if kind.subdtype is not None:
            shown = f"{kind.shape[0]} × {shown}"
        rows.append(f"| {offset} | {kind.itemsize} | `{shown}` | `{name}` |")
    return "\n".join(rows)
