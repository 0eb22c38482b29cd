# cython: annotation_typing=False
"""The rows of a group: messages taken and not finished, each with one lease at most.

A row's tag (generation and state) says alone what it is; the free list, the ready list and
the counts are derived and can be rebuilt from the tags. A receipt is (row, tag at lease):
it settles the row only while the tag is still the same, so a stale one changes nothing (I4).

    FREE → LEASED → FREE            taken, acked
             ↓  ↑
           WAITING → READY          given back: later, or at once
             ↓
           DEAD                     given up: kept and counted

The holder of the group's lock calls everything here but `overdue`. Fields of a FREE row are
written plainly; whatever else changes is noted first. Many rows go in one transaction of at
most CHUNK.
"""

from typing import Any

import numpy as np

from persist.prim import Memory
from persist.record import Header
from shmq import layout as _layout
from shmq.lanes import Lane
from shmq.ops import OP_NEXT, Ops
from shmq.undo import DamagedLog, Undo

CHUNK = 32  # rows in one transaction: within the undo log, short to hold the lock for

_CURSOR = _layout.word(_layout.GROUP, "cursor")
_FREE_HEAD = _layout.word(_layout.GROUP, "free_head")
_ROWS_USED = _layout.word(_layout.GROUP, "rows_used")
_READY_HEAD = _layout.word(_layout.GROUP, "ready_head")
_READY_TAIL = _layout.word(_layout.GROUP, "ready_tail")
_FINISHED = _layout.word(_layout.GROUP, "finished")
_REDELIVERED = _layout.word(_layout.GROUP, "redelivered")
_DEAD_COUNT = _layout.word(_layout.GROUP, "dead")
_OP_NEXT = OP_NEXT
_ROW_WORDS = _layout.words(_layout.ROW)
_SEQ = _layout.word(_layout.ROW, "seq")
_POSITION = _layout.word(_layout.ROW, "position")
_BYTES = _layout.word(_layout.ROW, "bytes")
_DUE = _layout.word(_layout.ROW, "due")
_DELIVERIES = _layout.word(_layout.ROW, "deliveries")
_OWNER = _layout.word(_layout.ROW, "owner")
_NEXT = _layout.word(_layout.ROW, "next")
_FREE, _LEASED, _WAITING = _layout.FREE, _layout.LEASED, _layout.WAITING
_READY, _DEAD = _layout.READY, _layout.DEAD
_ACK, _REJECT, _RETURN = _layout.ACK, _layout.REJECT, _layout.RETURN
_CHUNK = CHUNK

# Which count an op adds to; RETURN (a handle closed in order) is no failure.
_COUNTED = {
    _layout.NACK: _layout.word(_layout.GROUP, "nacked"),
    _layout.REJECT: _layout.word(_layout.GROUP, "rejected"),
    _layout.EXPIRE: _layout.word(_layout.GROUP, "expired"),
    _layout.DIE: _layout.word(_layout.GROUP, "died"),
}


class Scratch:
    """What one call carries into or out of the lock: up to CHUNK rows, without allocating.

    Private memory: the row and the tag of each. Every call has its own while it runs, so
    neither another thread nor a destructor that calls back can change it.
    """

    def __init__(self) -> None:
        self.memory = Memory(bytearray(16 * CHUNK))
        self.header = Header()
        self.stale = 0

    def keep(self, n: int, row: int, tag: int) -> None:
        """Write down the n-th row."""
        self.memory.store(2 * n, row)
        self.memory.store(2 * n + 1, tag)


class Leases:
    """The rows of one group segment, for one process."""

    def __init__(
        self,
        memory: Memory,
        undo: Undo,
        ops: Ops,
        lane: Lane,
        rows_at: int,
        rows: int,
        max_deliveries: int,
    ) -> None:
        self._memory = memory
        self._undo = undo
        self._ops = ops
        self._lane = lane
        self._rows_at = rows_at >> 3
        self._rows = rows
        self._max_deliveries = max_deliveries

    # Taking

    def take(self, scratch: Scratch, limit: int, due: int, owner: int) -> int:
        """Lease up to min(limit, CHUNK) messages into scratch, returned ones first; how many."""
        count = 0
        if self._memory.load(_READY_HEAD):
            while count < limit and count < _CHUNK and self._take_ready(scratch, count, due, owner):
                count += 1
            return count
        return self._take_new(scratch, limit, due, owner)

    def _take_new(  # noqa: C901 (one loop, whole: a call per row would cost more than the row)
        self, scratch: Scratch, limit: int, due: int, owner: int
    ) -> int:
        memory = self._memory
        undo = self._undo
        lane = self._lane
        cursor = memory.load(_CURSOR)
        free = memory.load(_FREE_HEAD)
        used = memory.load(_ROWS_USED)
        if limit > _CHUNK:
            limit = _CHUNK
        count = 0
        while count < limit and lane.look(cursor + count):
            if free:
                row = free - 1
            elif used < self._rows:
                row = used
                used += 1
            else:
                break  # every row is taken: the rest waits until some are settled
            if row >= self._rows:
                self._damaged(row)
            at = self._rows_at + row * _ROW_WORDS
            if free:
                free = memory.load(at + _NEXT)
            tag = memory.load(at)
            if (tag & 0xFF) != _FREE:
                raise DamagedLog(f"row {row} is on the free list with tag {tag:#x}")
            tag = (((tag >> 8) + 1) << 8) | _LEASED
            memory.store(at + _SEQ, lane.seq)
            memory.store(at + _POSITION, lane.position)
            memory.store(at + _BYTES, lane.size)
            memory.store(at + _DUE, due)
            memory.store(at + _DELIVERIES, 1)
            memory.store(at + _OWNER, owner)
            if count == 0:
                undo.begin()
            undo.note(at)
            scratch.keep(count, row, tag)
            count += 1
        if count == 0:
            return 0
        undo.arm()
        taken = scratch.memory
        for n in range(count):
            row = taken.load(2 * n)
            memory.store(self._rows_at + row * _ROW_WORDS, taken.load(2 * n + 1))
        memory.store(_FREE_HEAD, free)
        memory.store(_ROWS_USED, used)
        memory.store(_CURSOR, cursor + count)
        undo.commit()
        return count

    def _take_ready(self, scratch: Scratch, n: int, due: int, owner: int) -> bool:
        memory = self._memory
        undo = self._undo
        head = memory.load(_READY_HEAD)
        if head == 0:
            return False
        at = self.row_at(head - 1)
        tag = memory.load(at)
        if (tag & 0xFF) != _READY:
            raise DamagedLog(f"row {head - 1} is on the ready list with tag {tag:#x}")
        following = memory.load(at + _NEXT)
        deliveries = memory.load(at + _DELIVERIES) + 1
        tag = (((tag >> 8) + 1) << 8) | _LEASED
        undo.begin()
        undo.note(_REDELIVERED)
        undo.note(at)
        undo.note(at + _DUE)
        undo.note(at + _DELIVERIES)
        undo.note(at + _OWNER)
        undo.arm()
        memory.store(_READY_HEAD, following)
        if following == 0:
            memory.store(_READY_TAIL, 0)
        memory.store(_REDELIVERED, memory.load(_REDELIVERED) + 1)
        memory.store(at + _DUE, due)
        memory.store(at + _DELIVERIES, deliveries)
        memory.store(at + _OWNER, owner)
        memory.store(at, tag)
        undo.commit()
        scratch.keep(n, head - 1, tag)
        return True

    # Settling

    def finish(self, scratch: Scratch, count: int) -> int:
        """Ack the chosen rows whose lease still holds; how many. `stale`: a bit per other."""
        memory = self._memory
        undo = self._undo
        taken = scratch.memory
        scratch.stale = 0
        undo.begin()
        for n in range(count):
            row = taken.load(2 * n)
            if row >= self._rows:
                self._damaged(row)
            undo.note(self._rows_at + row * _ROW_WORDS)
        undo.arm()
        free = memory.load(_FREE_HEAD)
        number = memory.load(_OP_NEXT)
        finished = 0
        for n in range(count):
            row = taken.load(2 * n)
            tag = taken.load(2 * n + 1)
            at = self._rows_at + row * _ROW_WORDS
            # Compared only now, so that a receipt named twice settles once.
            if memory.load(at) != tag:
                scratch.stale |= 1 << n
                continue
            self._ops.place(number, _ACK, memory.load(at + _SEQ), memory.load(at + _DELIVERIES))
            memory.store(at + _NEXT, free)
            memory.store(at, (tag & ~0xFF) | _FREE)
            free = row + 1
            number += 1
            finished += 1
        memory.store(_FREE_HEAD, free)
        memory.store(_OP_NEXT, number)
        memory.store(_FINISHED, memory.load(_FINISHED) + finished)
        undo.commit()
        return finished

    def give_back(self, row: int, tag: int, kind: int, due: int) -> bool:
        """End a lease otherwise: ready at once (due 0), waiting until due, or given up.

        False, and nothing changed, if the lease is no longer the one the tag names.
        """
        memory = self._memory
        undo = self._undo
        at = self.row_at(row)
        if memory.load(at) != tag or (tag & 0xFF) != _LEASED:
            return False
        deliveries = memory.load(at + _DELIVERIES)
        number = memory.load(_OP_NEXT)
        self._ops.place(number, kind, memory.load(at + _SEQ), deliveries)
        counted = _COUNTED.get(kind, 0)
        undo.begin()
        undo.note(at)
        if counted:
            undo.note(counted)
        if kind == _REJECT or (kind != _RETURN and deliveries >= self._max_deliveries):
            undo.note(_DEAD_COUNT)
            undo.arm()
            memory.store(_DEAD_COUNT, memory.load(_DEAD_COUNT) + 1)
            memory.store(at, (tag & ~0xFF) | _DEAD)
        elif due:
            undo.note(at + _DUE)
            undo.arm()
            memory.store(at + _DUE, due)
            memory.store(at, (tag & ~0xFF) | _WAITING)
        else:
            self._note_ready(at)
            undo.arm()
            self._store_ready(row, at, tag)
        if counted:
            memory.store(counted, memory.load(counted) + 1)
        memory.store(_OP_NEXT, number + 1)
        undo.commit()
        return True

    def ready(self, row: int, tag: int) -> bool:
        """Make a waiting row ready; False if it is not waiting any more."""
        undo = self._undo
        at = self.row_at(row)
        if self._memory.load(at) != tag or (tag & 0xFF) != _WAITING:
            return False
        undo.begin()
        undo.note(at)
        self._note_ready(at)
        undo.arm()
        self._store_ready(row, at, tag)
        undo.commit()
        return True

    def _note_ready(self, at: int) -> None:
        last = self._memory.load(_READY_TAIL)
        self._undo.note(at + _NEXT)
        if last:
            self._undo.note(self.row_at(last - 1) + _NEXT)

    def _store_ready(self, row: int, at: int, tag: int) -> None:
        memory = self._memory
        last = memory.load(_READY_TAIL)
        memory.store(at + _NEXT, 0)
        if last:
            memory.store(self.row_at(last - 1) + _NEXT, row + 1)
        else:
            memory.store(_READY_HEAD, row + 1)
        memory.store(_READY_TAIL, row + 1)
        memory.store(at, (tag & ~0xFF) | _READY)

    def extend(self, row: int, tag: int, due: int) -> bool:
        """Move the end of a lease; False if it was lost."""
        memory = self._memory
        at = self.row_at(row)
        if memory.load(at) != tag:
            return False
        undo = self._undo
        undo.begin()
        undo.note(at + _DUE)
        undo.arm()
        memory.store(at + _DUE, due)
        undo.commit()
        return True

    # Looking

    def due(self, row: int) -> int:
        """When the lease of a row ends, or its waiting."""
        return self._memory.load(self.row_at(row) + _DUE)

    def deliveries(self, row: int) -> int:
        """How often the message of a row has been delivered; a look without the lock."""
        return self._memory.load(self.row_at(row) + _DELIVERIES)

    def snapshot(self, scratch: Memory) -> int:
        """Copy the rows ever used, if scratch is large enough; how many there are."""
        used = self._memory.load(_ROWS_USED)
        if used > self._rows:
            raise DamagedLog(f"{used} rows used of {self._rows}")
        if used * _ROW_WORDS * 8 <= scratch.size:
            self._memory.copy_to(self._rows_at * 8, used * _ROW_WORDS * 8, scratch)
        return used

    def overdue(self, now: int, dead: list[int]) -> tuple[list[tuple[int, int, int]], int]:
        """Rows to look at again: (row, tag, kind), by seq; and when the next will be due.

        Reads without the lock: each answer is checked again under it. `dead` names owners.
        """
        used = min(self._memory.load(_ROWS_USED), self._rows)
        table = np.frombuffer(
            self._memory.view(self._rows_at * 8, used * _ROW_WORDS * 8), _layout.ROW, used
        )
        tags = table["tag"].copy()
        state = tags & 0xFF
        due = table["due"].copy()
        leased = state == _LEASED
        orphaned = leased & np.isin(table["owner"], np.array(dead, np.uint64))
        expired = leased & ~orphaned & (due <= now)
        waited = (state == _WAITING) & (due <= now)
        found = np.flatnonzero(orphaned | expired | waited)
        found = found[np.argsort(table["seq"][found], kind="stable")]
        rest = due[(leased & ~orphaned & ~expired) | ((state == _WAITING) & ~waited)]
        kinds: Any = np.where(orphaned, _layout.DIE, np.where(expired, _layout.EXPIRE, 0))
        rows = [(int(row), int(tags[row]), int(kinds[row])) for row in found]
        return rows, int(rest.min()) if len(rest) else 0

    # Mending

    def rebuild(self) -> None:
        """Recompute every derived word from the tags; the second line after the undo log.

        Each store is idempotent and the log is condemned until the end (Guard.mend), so dying
        in here means that the next holder starts over.
        """
        memory = self._memory
        used = 0
        free = ready_head = ready_tail = dead = 0
        waiting_again = []
        for row in range(self._rows):
            at = self._rows_at + row * _ROW_WORDS
            tag = memory.load(at)
            if tag:
                used = row + 1
            state = tag & 0xFF
            if state == _READY:
                waiting_again.append((memory.load(at + _SEQ), row))
            elif state == _DEAD:
                dead += 1
            elif state > _DEAD:
                # A tag no code writes: what it held cannot be known, its number is retired.
                memory.store(at, (tag & ~0xFF) | _FREE)
        for row in range(used):
            at = self._rows_at + row * _ROW_WORDS
            if (memory.load(at) & 0xFF) == _FREE:
                memory.store(at + _NEXT, free)
                free = row + 1
        for _, row in sorted(waiting_again):
            at = self._rows_at + row * _ROW_WORDS
            memory.store(at + _NEXT, 0)
            if ready_tail:
                memory.store(self._rows_at + (ready_tail - 1) * _ROW_WORDS + _NEXT, row + 1)
            else:
                ready_head = row + 1
            ready_tail = row + 1
        memory.store(_ROWS_USED, used)
        memory.store(_FREE_HEAD, free)
        memory.store(_READY_HEAD, ready_head)
        memory.store(_READY_TAIL, ready_tail)
        memory.store(_DEAD_COUNT, dead)

    def row_at(self, row: int) -> int:
        """The word where a row starts; rows come from shared memory, so they are checked."""
        if row >= self._rows:
            self._damaged(row)
        return self._rows_at + row * _ROW_WORDS

    def _damaged(self, row: int) -> None:
        raise DamagedLog(f"row {row} of {self._rows}")
