# cython: annotation_typing=False
"""The lane index: the published messages of a lane, in order, as a ring of entries.

Producers write an entry under the queue's lock, before `published` covers it; consumers
read it without that lock. An entry is there for ordinal n when it carries n (stored last)
and its seq is below `published`; it then never changes until every group's cursor has
passed it, because producers do not go round before. An entry whose put was rolled back
keeps its ordinal, but also its seq, which no put publishes without rewriting the entry.
"""

from persist.errors import CorruptRecord
from persist.prim import Memory
from shmq import layout as _layout

_PUBLISHED = _layout.word(_layout.QUEUE, "published")
_WORDS = _layout.words(_layout.ENTRY)
_SEQ = _layout.word(_layout.ENTRY, "seq")
_POSITION = _layout.word(_layout.ENTRY, "position")
_SIZE = _layout.word(_layout.ENTRY, "size_and_flags")
_KEY_HASH = _layout.word(_layout.ENTRY, "key_hash")
_TIMESTAMP = _layout.word(_layout.ENTRY, "timestamp")
_OUT_OF_ORDER = _layout.OUT_OF_ORDER
_SIZE_MASK = _layout.OUT_OF_ORDER - 1


class Lane:
    """The index of one lane; `look` leaves what it found in seq, position, size."""

    def __init__(self, memory: Memory, index_at: int, entries: int, ring_bytes: int) -> None:
        self._memory = memory
        self._at = index_at >> 3
        self._entries = entries
        self._ring_bytes = ring_bytes
        self._published = 0
        self.seq = 0
        self.position = 0
        self.size = 0
        self.is_out_of_order = False

    def place(self, ordinal: int, seq: int, position: int, size: int, timestamp: int) -> None:
        """Write the entry of a message that is about to be published."""
        memory = self._memory
        at = self._at + (ordinal % self._entries) * _WORDS
        memory.store(at + _SEQ, seq)
        memory.store(at + _POSITION, position)
        memory.store(at + _SIZE, size)
        memory.store(at + _KEY_HASH, 0)
        memory.store(at + _TIMESTAMP, timestamp)
        memory.store(at, ordinal)

    def look(self, ordinal: int) -> bool:
        """Whether a message with this ordinal is published; if so, where it is.

        Any process may call this at any time for an ordinal no cursor has passed.
        """
        memory = self._memory
        at = self._at + (ordinal % self._entries) * _WORDS
        if memory.load(at) != ordinal:
            return False
        seq = memory.load(at + _SEQ)
        # `published` only grows: what was seen of it is good for ever, and not looking again
        # leaves its cache line with the producers.
        if seq >= self._published:
            self._published = memory.load(_PUBLISHED)
            if seq >= self._published:
                return False
        size = memory.load(at + _SIZE)
        position = memory.load(at + _POSITION)
        self.is_out_of_order = size >= _OUT_OF_ORDER
        size &= _SIZE_MASK
        if size > self._ring_bytes or position % self._ring_bytes + size > self._ring_bytes:
            raise CorruptRecord(f"the entry of message {seq} points outside the ring")
        self.seq = seq
        self.position = position
        self.size = size
        return True
