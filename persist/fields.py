"""The optional fields of a record: packed behind its header, announced by its flags."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from persist import format as _format
from persist.errors import CorruptRecord, UnknownFormat

# Fields of fixed shape, in the order they are packed: flag, attribute, struct.
_FIXED = (
    (_format.EXPIRES_AT, "expires_at", struct.Struct("<Q")),
    (_format.DELIVER_AT, "deliver_at", struct.Struct("<Q")),
    (_format.DEDUP, "dedup", struct.Struct("16s")),
    (_format.TRACE, "trace", struct.Struct("16s")),
)
_ENCODING = struct.Struct("<HHI")
_LENGTH = struct.Struct("<I")
_PAIR = struct.Struct("<HBI")


@dataclass(frozen=True)
class Fields:
    """The optional fields of a record; None, 0 or empty means absent."""

    expires_at: int = 0
    deliver_at: int = 0
    dedup: bytes = b""
    trace: bytes = b""
    codec: int = 0
    compression: int = 0
    key: bytes | None = None
    headers: tuple[tuple[str, str | bytes], ...] = ()

    def __post_init__(self) -> None:
        for name in ("dedup", "trace"):
            if len(getattr(self, name)) not in (0, 16):
                raise ValueError(f"{name} has 16 bytes, not {len(getattr(self, name))}")

    def pack(self) -> tuple[int, bytes]:
        """The flags that announce the fields, and their bytes; ValueError if they are too long."""
        flags = 0
        parts = []
        for flag, name, shape in _FIXED:
            value = getattr(self, name)
            if value:
                flags |= flag
                parts.append(shape.pack(value))
        if self.codec or self.compression:
            flags |= _format.ENCODING
            parts.append(_ENCODING.pack(self.codec, self.compression, 0))
        if self.key is not None:
            flags |= _format.KEY
            parts.append(_sized(self.key))
        if self.headers:
            flags |= _format.HEADERS
            parts.append(_sized(b"".join(_pack_pair(*pair) for pair in self.headers)))
        packed = b"".join(parts)
        if len(packed) > _format.FIELDS_BYTES_MAX:
            raise ValueError(
                f"key and headers take {len(packed):,} bytes; {_format.FIELDS_BYTES_MAX:,} fit"
            )
        return flags, packed

    @classmethod
    def unpack(cls, flags: int, packed: bytes) -> "Fields":
        """The fields that `flags` announce in `packed`; CorruptRecord if they do not fit it."""
        if flags & ~(_format.KNOWN_FIELDS | _format.MORE):
            raise UnknownFormat(f"flags {flags:#06x} announce fields this version does not know")
        try:
            values, used = _unpack(flags, packed)
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptRecord(f"optional fields do not fit their {len(packed)} bytes") from error
        if used != len(packed):
            raise CorruptRecord(f"optional fields take {used} of {len(packed)} bytes")
        return cls(**values)


def _unpack(flags: int, packed: bytes) -> tuple[dict[str, Any], int]:
    values: dict[str, Any] = {}
    at = 0
    for flag, name, shape in _FIXED:
        if flags & flag:
            (values[name],) = shape.unpack_from(packed, at)
            at += shape.size
    if flags & _format.ENCODING:
        values["codec"], values["compression"], _ = _ENCODING.unpack_from(packed, at)
        at += _ENCODING.size
    if flags & _format.KEY:
        values["key"], at = _take_sized(packed, at)
    if flags & _format.HEADERS:
        pairs, at = _take_sized(packed, at)
        values["headers"] = tuple(_unpack_pairs(pairs))
    return values, at


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data + bytes(-(len(data) + _LENGTH.size) & 7)


def _take_sized(packed: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(packed, at)
    end = at + _LENGTH.size + length
    if end > len(packed):
        raise struct.error("a length points behind the fields")
    return packed[at + _LENGTH.size : end], (end + 7) & ~7


def _pack_pair(name: str, value: str | bytes) -> bytes:
    head = name.encode()
    body = value.encode() if isinstance(value, str) else value
    if len(head) > 0xFFFF:
        raise ValueError(f"a header's name has {len(head):,} bytes; 65,535 fit")
    return _PAIR.pack(len(head), isinstance(value, str), len(body)) + head + body


def _unpack_pairs(pairs: bytes) -> Iterator[tuple[str, str | bytes]]:
    at = 0
    while at < len(pairs):
        name_bytes, is_text, value_bytes = _PAIR.unpack_from(pairs, at)
        at += _PAIR.size
        end = at + name_bytes + value_bytes
        if end > len(pairs):
            raise struct.error("a header points behind its pairs")
        value = pairs[at + name_bytes : end]
        yield pairs[at : at + name_bytes].decode(), value.decode() if is_text else value
        at = end
