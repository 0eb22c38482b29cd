# cython: annotation_typing=False
"""Records into the ring: the producers' side of a queue segment.

The holder of the queue's lock calls everything here but `use_gaps`. A put is: find a place
the frontier can take (`find`), write record and entry where nothing points yet, then one
transaction of three words of which the last, `published`, commits.

What a death leaves, in `append`: before `arm`, bytes beyond the tail that nothing points
to; between `arm` and `published`, a log that restores the tail and the lane; after
`published`, a message, and a log that finds it so. A reservation whose owner died is freed
by whoever sweeps; its bytes become a gap.
"""

from persist import format as _format
from persist.prim import Buffer, Memory, seed
from persist.record import HEADER_BYTES, record_bytes, write_header
from shmq import layout as _layout
from shmq.lanes import Lane
from shmq.undo import Undo

_TAIL = _layout.word(_layout.QUEUE, "tail")
_LANE_NEXT = _layout.word(_layout.QUEUE, "lane_next")
_PUBLISHED = _layout.word(_layout.QUEUE, "published")
_SALT = _layout.word(_layout.QUEUE, "salt")
_SLOT_WORDS = _layout.words(_layout.RESERVATION)
_SLOT_OWNER = _layout.word(_layout.RESERVATION, "owner")
_SLOT_POSITION = _layout.word(_layout.RESERVATION, "position")
_SLOT_BYTES = _layout.word(_layout.RESERVATION, "bytes")
_SLOT_ORDINAL = _layout.word(_layout.RESERVATION, "ordinal")
_SLOTS = _layout.RESERVATIONS
_FREE, _RESERVED, _PLACED = _layout.FREE, _layout.RESERVED, _layout.PLACED
_OUT_OF_ORDER = _layout.OUT_OF_ORDER
_HEADER_BYTES = HEADER_BYTES
_DATA = _format.DATA
_MORE = _format.MORE


class Ring:
    """The ring of one queue segment, for one producing process."""

    def __init__(
        self,
        memory: Memory,
        undo: Undo,
        lane: Lane,
        ring_at: int,
        ring_bytes: int,
        entries: int,
        reservations_at: int,
    ) -> None:
        self._memory = memory
        self._undo = undo
        self._lane = lane
        self._ring_at = ring_at
        self._ring_bytes = ring_bytes
        self._entries = entries
        self._slots_at = reservations_at >> 3
        self._slot_hint = 0
        self._salt = self._memory.load(_SALT)
        # What this process knows of free space; all of it may be out of date, none wrong.
        self._cursor_seen = 0
        self._gap_start = 0
        self._gap_end = 0
        self._gaps: list[tuple[int, int]] = []
        self.position = 0

    def use_gaps(self, gaps: list[tuple[int, int]], cursor: int) -> None:
        """Take note of fresher knowledge: free stretches and how far consumers are."""
        self._gaps = gaps
        self._gap_start = self._gap_end = 0
        self._cursor_seen = cursor

    def has_entries(self, count: int) -> bool:
        """Whether the lane index has room for `count` more."""
        return self._memory.load(_LANE_NEXT) + count <= self._cursor_seen + self._entries

    def find(self, size: int, count: int) -> bool:
        """Whether `size` contiguous bytes and `count` entries are free; then `position`."""
        if not self.has_entries(count):
            return False
        tail = self._memory.load(_TAIL)
        if self._gap_start <= tail and tail + size <= self._gap_end:
            self.position = tail
            return True
        return self._find_in_next_gap(tail, size)

    def _find_in_next_gap(self, tail: int, size: int) -> bool:
        for start, end in self._gaps:
            start = max(start, tail)
            if start + size <= end:
                self._gap_start = start
                self._gap_end = end
                self.position = start
                return True
        return False

    def append(self, body: Buffer, body_bytes: int, timestamp: int) -> int:
        """Publish one message at the place that `find` found; its seq."""
        memory = self._memory
        undo = self._undo
        position = self.position
        size = record_bytes(0, body_bytes)
        seq = memory.load(_PUBLISHED)
        ordinal = memory.load(_LANE_NEXT)
        self._write(position, body, body_bytes, 0, seq, timestamp)
        self._lane.place(ordinal, seq, position, size, timestamp)
        undo.begin()
        undo.commit_by(_PUBLISHED, seq + 1)
        undo.arm()
        memory.store(_TAIL, position + size)
        memory.store(_LANE_NEXT, ordinal + 1)
        memory.store(_PUBLISHED, seq + 1)
        undo.commit()
        return seq

    def append_many(self, bodies: list[Buffer], timestamp: int) -> int:
        """Publish all of them at the place that `find` found, at once; the first seq."""
        memory = self._memory
        undo = self._undo
        position = self.position
        first = memory.load(_PUBLISHED)
        ordinal = memory.load(_LANE_NEXT)
        seq = first
        left = len(bodies)
        for body in bodies:
            left -= 1
            body_bytes = len(body)
            size = record_bytes(0, body_bytes)
            self._write(position, body, body_bytes, _MORE if left else 0, seq, timestamp)
            self._lane.place(ordinal, seq, position, size, timestamp)
            position += size
            seq += 1
            ordinal += 1
        undo.begin()
        undo.commit_by(_PUBLISHED, seq)
        undo.arm()
        memory.store(_TAIL, position)
        memory.store(_LANE_NEXT, ordinal)
        memory.store(_PUBLISHED, seq)
        undo.commit()
        return first

    def _write(
        self, position: int, body: Buffer, body_bytes: int, flags: int, seq: int, timestamp: int
    ) -> None:
        """The record, except its body checksum, which memory queues leave out."""
        at = self._ring_at + position % self._ring_bytes
        self._memory.copy_in(at + _HEADER_BYTES, body)
        write_header(
            self._memory, at, seed(self._salt, position), _DATA, flags, 0, 0,
            body_bytes, body_bytes, seq, timestamp,
        )  # fmt: skip

    def reserve(self, size: int, owner: int, claim: Memory) -> int:
        """Lend the place that `find` found; the slot, or -1 when all slots are taken.

        Private memory `claim` gets slot + 1 and tag before the reservation exists.
        """
        memory = self._memory
        undo = self._undo
        slot = self._free_slot()
        if slot < 0:
            return -1
        at = self._slots_at + slot * _SLOT_WORDS
        tag = (((memory.load(at) >> 8) + 1) << 8) | _RESERVED
        position = self.position
        claim.store(1, tag)
        claim.store(0, slot + 1)
        memory.store(at + _SLOT_OWNER, owner)
        memory.store(at + _SLOT_POSITION, position)
        memory.store(at + _SLOT_BYTES, size)
        undo.begin()
        undo.note(at)
        undo.arm()
        memory.store(at, tag)
        memory.store(_TAIL, position + size)
        undo.commit()
        return slot

    def _free_slot(self) -> int:
        memory = self._memory
        for n in range(_SLOTS):
            slot = (self._slot_hint + n) % _SLOTS
            if (memory.load(self._slots_at + slot * _SLOT_WORDS) & 0xFF) == _FREE:
                self._slot_hint = slot + 1
                return slot
        return -1

    def slot_tag(self, slot: int) -> int:
        """The tag of a slot: what `publish` and `drop` compare before they act."""
        return self._memory.load(self._slots_at + slot * _SLOT_WORDS)

    def slot_owner(self, slot: int) -> int:
        """Who is filling a reservation; 0 when nobody is. Needs no lock for a first look."""
        at = self._slots_at + slot * _SLOT_WORDS
        if (self._memory.load(at) & 0xFF) != _RESERVED:
            return 0
        return self._memory.load(at + _SLOT_OWNER)

    def publish(self, slot: int, tag: int, body_bytes: int, timestamp: int) -> int:
        """Make a reservation whose body has been written a message; its seq, -1 if lost.

        The order of messages is the order of publication. When nothing was laid behind the
        reservation meanwhile it is in order and the slot is free again; else the slot keeps
        the place until the message has been taken.
        """
        memory = self._memory
        undo = self._undo
        at = self._slots_at + slot * _SLOT_WORDS
        if memory.load(at) != tag:
            return -1
        position = memory.load(at + _SLOT_POSITION)
        size = memory.load(at + _SLOT_BYTES)
        is_last = position + size == memory.load(_TAIL)
        seq = memory.load(_PUBLISHED)
        ordinal = memory.load(_LANE_NEXT)
        place = self._ring_at + position % self._ring_bytes
        write_header(
            memory, place, seed(self._salt, position), _DATA, 0, 0, 0,
            body_bytes, body_bytes, seq, timestamp,
        )  # fmt: skip
        entry_size = size if is_last else size | _OUT_OF_ORDER
        self._lane.place(ordinal, seq, position, entry_size, timestamp)
        undo.begin()
        undo.note(at)
        undo.note(at + _SLOT_ORDINAL)
        undo.commit_by(_PUBLISHED, seq + 1)
        undo.arm()
        memory.store(_LANE_NEXT, ordinal + 1)
        memory.store(at + _SLOT_ORDINAL, ordinal)
        memory.store(at, (tag & ~0xFF) | (_FREE if is_last else _PLACED))
        memory.store(_PUBLISHED, seq + 1)
        undo.commit()
        return seq

    def drop(self, slot: int, tag: int) -> None:
        """Give a reservation back, unless it has become somebody else's."""
        memory = self._memory
        at = self._slots_at + slot * _SLOT_WORDS
        if memory.load(at) != tag:
            return
        undo = self._undo
        undo.begin()
        undo.note(at)
        undo.arm()
        memory.store(at, (tag & ~0xFF) | _FREE)
        undo.commit()

    def body_at(self, slot: int) -> int:
        """The byte where the body of a reservation goes."""
        position = self._memory.load(self._slots_at + slot * _SLOT_WORDS + _SLOT_POSITION)
        return self._ring_at + position % self._ring_bytes + _HEADER_BYTES

    def rebuild(self) -> None:
        """Recompute the tail and the lane from `published` and what the rows of both tables say.

        The second line after the undo log: `published` is stored once and commits, so the
        lane ends at the entry of the last seq below it; the tail may be anywhere beyond
        every published record and reservation.
        """
        memory = self._memory
        published = memory.load(_PUBLISHED)
        tail = memory.load(_TAIL)
        for slot in range(_SLOTS):
            at = self._slots_at + slot * _SLOT_WORDS
            if (memory.load(at) & 0xFF) != _FREE:
                tail = max(tail, memory.load(at + _SLOT_POSITION) + memory.load(at + _SLOT_BYTES))
        memory.store(_TAIL, tail)
        # One lane: ordinals and seqs run together.
        memory.store(_LANE_NEXT, published)
