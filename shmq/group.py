# cython: annotation_typing=False
"""A group of consumers: what is done for all of them by whoever calls.

One group (`default`) for now. Nothing runs in the background: a caller who finds a sweep due
looks for leases that ran out, waits that ended and processes that died.
"""

import numpy as np

from persist.prim import Memory
from shmq import layout as _layout
from shmq.clock import SECOND
from shmq.consumer import SWEEP, Consumer
from shmq.signals import WAIT_MAX
from shmq.stats import Stats

_CURSOR = _layout.word(_layout.GROUP, "cursor")
_DELETED = _layout.word(_layout.GROUP, "deleted")
_SWEEP_AT = _layout.word(_layout.GROUP, "sweep_at")
_DIE, _RETURN = _layout.DIE, _layout.RETURN
_SWEEP_NS = int(SWEEP * SECOND)
_IDLE_NS = int(WAIT_MAX * SECOND)
_ROW_BYTES = _layout.ROW.itemsize
_COUNTS = {
    name: _layout.word(_layout.GROUP, name)
    for name in (
        "cursor", "redelivered", "finished", "nacked", "rejected", "expired", "died", "dead",
        "recoveries",
    )
}  # fmt: skip


class Group(Consumer):
    """The default group of one queue, for one process."""

    def sweep(self, now: int) -> None:
        """Return what ran out, what is due, and what dead processes held."""
        dead = self._queue.dead_owners()
        found, next_due = self.leases.overdue(now, dead)
        returned = 0
        for row, tag, kind in found:
            self.guard.check()
            try:
                self.guard.enter()
                if kind == _DIE:
                    returned += self.leases.give_back(row, tag, kind, 0)
                elif self.leases.due(row) > now:
                    pass  # extended since we looked
                elif kind:
                    returned += self.leases.give_back(row, tag, kind, 0)
                else:
                    returned += self.leases.ready(row, tag)
                self._mutex.release()
            except BaseException:
                self._mutex.abandon()
                raise
        if dead:
            self._queue.bury(dead)
        wanted = now + (_SWEEP_NS if next_due else _IDLE_NS)
        if next_due:
            wanted = min(wanted, next_due)
        self.guard.check()
        try:
            self.guard.enter()
            self._memory.store(_SWEEP_AT, max(wanted, now + 1_000_000))
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        for _ in range(min(returned, len(self._tickets) + 64)):
            self._wake_consumer()

    def hand_back(self, owner: int) -> None:
        """Return every lease of an owner that leaves in order; the attempts stay counted."""
        found, _ = self.leases.overdue(0, [owner])
        for row, tag, kind in found:
            if kind != _DIE:
                continue
            self.guard.check()
            try:
                self.guard.enter()
                self.leases.give_back(row, tag, _RETURN, 0)
                self._mutex.release()
            except BaseException:
                self._mutex.abandon()
                raise
            self._wake_consumer()

    def snapshot(self, scratch: Memory) -> tuple[int, int, int]:
        """Rows into scratch; (rows ever used, cursor, position of the first unread or 0 …).

        The third number is the position of the first unread message that lies in order, or
        2**64 - 1 when there is none.
        """
        self.guard.check()
        try:
            self.guard.enter()
            used = self.leases.snapshot(scratch)
            cursor = self._memory.load(_CURSOR)
            ordinal = cursor
            unread = 0xFFFF_FFFF_FFFF_FFFF
            while self._lane.look(ordinal):
                if not self._lane.is_out_of_order:
                    unread = self._lane.position
                    break
                ordinal += 1
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        return used, cursor, unread

    def stats(self, puts: int, recoveries: int, attached: int) -> Stats:
        """The group's counts beside what the queue knows."""
        memory = self._memory
        rows = Memory(bytearray(0))
        while True:
            self.guard.check()
            try:
                self.guard.enter()
                used = self.leases.snapshot(rows)
                words = {name: memory.load(index) for name, index in _COUNTS.items()}
                self._mutex.release()
            except BaseException:
                self._mutex.abandon()
                raise
            if used * _ROW_BYTES <= rows.size:
                break
            rows = Memory(bytearray(2 * used * _ROW_BYTES))
        states = np.frombuffer(rows.view(0, used * _ROW_BYTES), _layout.ROW)["tag"] & 0xFF
        ready = int(np.count_nonzero(states == _layout.READY))
        return Stats(
            puts=puts,
            ready=max(0, puts - words["cursor"]) + ready,
            in_flight=int(np.count_nonzero(states == _layout.LEASED)),
            waiting=int(np.count_nonzero(states == _layout.WAITING)),
            dead=words["dead"],
            gets=words["cursor"] + words["redelivered"],
            acks=words["finished"],
            nacks=words["nacked"],
            rejects=words["rejected"],
            expired=words["expired"],
            died=words["died"],
            recoveries=recoveries + words["recoveries"],
            attached=attached,
        )

    def mark_deleted(self) -> None:
        """Make every later `get` of any process fail: the names are about to go."""
        self.guard.check()
        try:
            self.guard.enter()
            # Looked at whenever a sweep is due, which it is thereby at once.
            self._memory.store(_DELETED, 1)
            self._memory.store(_SWEEP_AT, 0)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
