# cython: annotation_typing=False
"""The producers' side of a queue: putting, and finding room for it.

A put takes the queue's lock once, for a place the ring already knows to be free. Only when it
knows none does it look at what consumers still need (`_refresh`), which takes each lock for a
moment and works the rest out from copies, and then waits.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import numpy as np

from persist.prim import Buffer, Memory, Mutex
from persist.record import record_bytes
from shmq import layout as _layout
from shmq.clock import SECOND, Clock
from shmq.errors import MessageTooLarge, QueueFull, QueueNotFound, ShmqError
from shmq.group import Group
from shmq.lock import Guard
from shmq.memory import Segments
from shmq.ring import Ring
from shmq.settings import Settings
from shmq.signals import Bell
from shmq.space import gaps, unfinished

INLINE = 4096  # bytes: longer bodies are copied outside the lock, into reserved space
FULL_WAIT = 0.01  # s: how long a producer sleeps at most before it looks for space again

_TAIL = _layout.word(_layout.QUEUE, "tail")
_DELETED = _layout.word(_layout.QUEUE, "deleted")
_PUBLISHED = _layout.word(_layout.QUEUE, "published")
_ITEM_WAKES = _layout.word(_layout.QUEUE, "item_wakes")
_SPACE_SLEEPS = _layout.word(_layout.QUEUE, "space_sleeps")
_SPACE_WANTED = _layout.word(_layout.QUEUE, "space_wanted")
_ITEM_SLEEPS = _layout.word(_layout.GROUP, "item_sleeps")
_SPACE_WAKES = _layout.word(_layout.GROUP, "space_wakes")
_FINISHED = _layout.word(_layout.GROUP, "finished")
_SWEEP_AT = _layout.word(_layout.GROUP, "sweep_at")
_SLOTS_BYTES = _layout.RESERVATIONS * _layout.RESERVATION.itemsize
_INLINE = INLINE
_SECOND = SECOND
_NOWHERE = 0xFFFF_FFFF_FFFF_FFFF


class Producer:
    """What a Queue puts with; the Queue itself fills in the attributes."""

    name: str
    settings: Settings
    guard: Guard
    ring: Ring
    _segments: Segments
    _memory: Memory
    _group_memory: Memory
    _group: Group
    _mutex: Mutex
    _clock: Clock
    _space: Bell
    _items: Bell
    _tickets: list[int]
    _owner: int
    _max_message: int
    _max_batch: int

    def put(self, body: Buffer, *, sync: bool = False, timeout: float | None = None) -> int:
        """Put one message; its seq. Waits while the queue is full: QueueFull after timeout.

        `body` is bytes-like. `sync` is for durable queues; in memory there is nothing to
        wait for. A body beyond max_message is MessageTooLarge at once.
        """
        group = self._group
        if group.state:
            group.check_open()
        if type(body) is not bytes:
            body = _flat(body)
        body_bytes = len(body)
        if body_bytes > self._max_message:
            self._too_large(body_bytes)
        if body_bytes > _INLINE:
            return self._put_large(body, body_bytes, timeout)
        seq = self._try_put(body, body_bytes)
        if seq < 0:
            seq = self._put_slowly(body, body_bytes, timeout)
        if self._group_memory.load(_ITEM_SLEEPS) > self._memory.load(_ITEM_WAKES):
            self._wake_consumers(1)
        return seq

    def _try_put(self, body: Buffer, body_bytes: int) -> int:
        """Publish if there is room; the seq, or -1."""
        size = record_bytes(0, body_bytes)
        timestamp = self._clock.real()
        seq = -1
        self.guard.check()
        try:
            self.guard.enter()
            if self._memory.load(_DELETED):
                self._gone()
            if self.ring.find(size, 1):
                seq = self.ring.append(body, body_bytes, timestamp)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        return seq

    def _put_slowly(self, body: Buffer, body_bytes: int, timeout: float | None) -> int:
        deadline = self._deadline(timeout)
        self._refresh()
        while True:
            seq = self._try_put(body, body_bytes)
            if seq >= 0:
                return seq
            self._wait_for_space(deadline, timeout)

    def put_many(
        self, bodies: Iterable[Buffer], *, sync: bool = False, timeout: float | None = None
    ) -> range:
        """Put messages, all or none, next to each other; the range of their seqs.

        All of them together must fit a quarter of the ring, else MessageTooLarge.
        """
        if self._group.state:
            self._group.check_open()
        batch: list[Buffer] = [body if type(body) is bytes else _flat(body) for body in bodies]
        if not batch:
            published = self._memory.load(_PUBLISHED)
            return range(published, published)
        size = 0
        for body in batch:
            body_bytes = len(body)
            if body_bytes > self._max_message:
                self._too_large(body_bytes)
            size += record_bytes(0, body_bytes)
        if size > self._max_batch or len(batch) > self.settings.index_entries // 2:
            raise MessageTooLarge(
                f"a batch of {len(batch):,} messages and {size:,} bytes; at most a quarter of "
                f"the ring ({self._max_batch:,} bytes) and {self.settings.index_entries // 2:,} "
                "messages go in one batch"
            )
        first = self._try_put_many(batch, size)
        if first < 0:
            deadline = self._deadline(timeout)
            self._refresh()
            while True:
                first = self._try_put_many(batch, size)
                if first >= 0:
                    break
                self._wait_for_space(deadline, timeout)
        if self._group_memory.load(_ITEM_SLEEPS) > self._memory.load(_ITEM_WAKES):
            self._wake_consumers(len(batch))
        return range(first, first + len(batch))

    def _try_put_many(self, batch: list[Buffer], size: int) -> int:
        timestamp = self._clock.real()
        first = -1
        self.guard.check()
        try:
            self.guard.enter()
            if self._memory.load(_DELETED):
                self._gone()
            if self.ring.find(size, len(batch)):
                first = self.ring.append_many(batch, timestamp)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        return first

    def _put_large(self, body: Buffer, body_bytes: int, timeout: float | None) -> int:
        """Reserve, copy outside the lock, publish; nobody waits for the copy."""
        deadline = self._deadline(timeout)
        claim = Memory(bytearray(16))
        try:
            if not self._claim(claim, body_bytes, deadline, timeout):
                # Every slot is taken: then under the lock, as short bodies go.
                return self._put_slowly(body, body_bytes, timeout)
            self._memory.copy_in(self.ring.body_at(claim.load(0) - 1), body)
            return self._publish(claim, body_bytes, deadline, timeout)
        finally:
            self._unclaim(claim)

    def reserve(self, nbytes: int, *, timeout: float | None = None) -> "Reservation":
        """Space inside the queue for a body of nbytes, as a context manager.

        Inside the block the writable memoryview is the body; on leaving it is published, or
        dropped if an exception escapes. A slow writer holds nobody up.
        """
        if self._group.state:
            self._group.check_open()
        if not 0 <= nbytes <= self._max_message:
            self._too_large(nbytes)
        return Reservation(self, nbytes, timeout)

    def _claim(
        self, claim: Memory, body_bytes: int, deadline: int | None, timeout: float | None
    ) -> bool:
        """Reserve space; the slot + 1 and its tag in `claim`. False if all slots are taken.

        `claim` is filled inside the lock, before the reservation exists, so that whatever
        interrupts this leaves the caller able to drop it.
        """
        size = record_bytes(0, body_bytes)
        is_fresh = False
        while True:
            found = False
            slot = 0
            self.guard.check()
            try:
                self.guard.enter()
                if self._memory.load(_DELETED):
                    self._gone()
                found = self.ring.find(size, 1)
                if found:
                    slot = self.ring.reserve(size, self._owner, claim)
                self._mutex.release()
            except BaseException:
                self._mutex.abandon()
                raise
            if found:
                return slot >= 0
            if is_fresh:
                self._wait_for_space(deadline, timeout)
            else:
                self._refresh()
                is_fresh = True

    def _publish(
        self, claim: Memory, body_bytes: int, deadline: int | None, timeout: float | None
    ) -> int:
        """Publish a claimed reservation; its seq."""
        timestamp = self._clock.real()
        is_fresh = False
        while True:
            seq = -1
            has_room = False
            self.guard.check()
            try:
                self.guard.enter()
                has_room = self.ring.has_entries(1)
                if has_room:
                    seq = self.ring.publish(claim.load(0) - 1, claim.load(1), body_bytes, timestamp)
                self._mutex.release()
            except BaseException:
                self._mutex.abandon()
                raise
            if seq >= 0:
                claim.store(0, 0)
                if self._group_memory.load(_ITEM_SLEEPS) > self._memory.load(_ITEM_WAKES):
                    self._wake_consumers(1)
                return seq
            if has_room:
                raise ShmqError("the reservation was taken back: this process was thought dead")
            if is_fresh:
                self._wait_for_space(deadline, timeout)
            else:
                self._refresh()
                is_fresh = True

    def _unclaim(self, claim: Memory) -> None:
        """Drop a reservation that was not published."""
        if claim.load(0) == 0:
            return
        self.guard.check()
        try:
            self.guard.enter()
            self.ring.drop(claim.load(0) - 1, claim.load(1))
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        claim.store(0, 0)

    # Space

    def _refresh(self) -> None:
        """Learn where the ring has room now; takes each lock for a moment, never both."""
        plan = self._segments.queue_plan
        slots = bytearray(_SLOTS_BYTES)
        slots_memory = Memory(slots)
        tail = 0
        self.guard.check()
        try:
            self.guard.enter()
            tail = self._memory.load(_TAIL)
            self._memory.copy_to(plan.reservations_at, _SLOTS_BYTES, slots_memory)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        size = 64 * _layout.ROW.itemsize
        while True:
            rows = bytearray(size)
            used, cursor, unread = self._group.snapshot(Memory(rows))
            if used * _layout.ROW.itemsize <= size:
                break
            size = 2 * used * _layout.ROW.itemsize
        table = np.frombuffer(slots, _layout.RESERVATION)
        state = table["tag"] & 0xFF
        placed = state == _layout.PLACED
        taken = placed & (table["ordinal"] < cursor)
        lent = (state == _layout.RESERVED) | (placed & ~taken)
        positions, sizes = unfinished(memoryview(rows), used)
        found = gaps(
            tail,
            plan.ring_bytes,
            np.concatenate([positions, table["position"][lent]]),
            np.concatenate([sizes, table["bytes"][lent]]),
            tail if unread == _NOWHERE else min(unread, tail),
        )
        self.guard.check()
        try:
            self.guard.enter()
            for slot in np.flatnonzero(taken):
                self.ring.drop(int(slot), int(table["tag"][slot]))
            self.ring.use_gaps(found, cursor)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise

    def _wait_for_space(self, deadline: int | None, timeout: float | None) -> None:
        """Sleep until a good part was finished, or a moment; then look for room again."""
        now = self._clock.monotonic()
        if deadline is not None and now >= deadline:
            raise QueueFull(f"no room in queue {self.name!r} within {timeout} s")
        if self._group.state:
            self._group.check_open()
        if now >= self._group_memory.load(_SWEEP_AT):
            self._group.sweep(now)
        seconds = FULL_WAIT
        if deadline is not None:
            seconds = min(seconds, (deadline - now) / _SECOND)
        ticket = 0
        while self._tickets and not ticket:
            ticket = self._tickets.pop()
            if self._group_memory.load(_SPACE_WAKES) >= ticket:
                ticket = 0
        finished = self._group_memory.load(_FINISHED)
        outstanding = max(0, self._memory.load(_PUBLISHED) - finished)
        self.guard.check()
        try:
            self.guard.enter()
            # Worth waking for: an eighth of what is in the way, or the next one.
            self._memory.store(_SPACE_WANTED, finished + max(1, outstanding // 8))
            if not ticket:
                ticket = self._memory.load(_SPACE_SLEEPS) + 1
                self._memory.store(_SPACE_SLEEPS, ticket)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        self._space.wait(seconds)
        if self._group_memory.load(_SPACE_WAKES) < ticket:
            self._tickets.append(ticket)
        self._refresh()

    def _wake_consumers(self, count: int) -> None:
        """Post as many sleeping consumers as there are new messages for them."""
        posts = 0
        self.guard.check()
        try:
            self.guard.enter()
            wakes = self._memory.load(_ITEM_WAKES)
            sleeps = self._group_memory.load(_ITEM_SLEEPS)
            if sleeps > wakes:
                posts = min(count, sleeps - wakes)
                self._memory.store(_ITEM_WAKES, wakes + posts)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        for _ in range(min(posts, 1024)):
            self._items.ring()

    def _deadline(self, timeout: float | None) -> int | None:
        return None if timeout is None else self._clock.monotonic() + int(timeout * _SECOND)

    def _too_large(self, nbytes: int) -> None:
        raise MessageTooLarge(
            f"a body of {nbytes:,} bytes; max_message of queue {self.name!r} is "
            f"{self._max_message:,}"
        )

    def _gone(self) -> None:
        raise QueueNotFound(f"queue {self.name!r} was deleted while this process used it")


class Reservation:
    """Space lent by `Queue.reserve`: a context manager around a writable memoryview.

    `seq` is the message's id once the block was left in order.
    """

    def __init__(self, queue: Producer, nbytes: int, timeout: float | None) -> None:
        self._queue = queue
        self._nbytes = nbytes
        self._timeout = timeout
        self._claim = Memory(bytearray(16))
        self._view: memoryview | None = None
        self.seq = -1

    def __enter__(self) -> memoryview:
        queue = self._queue
        try:
            deadline = queue._deadline(self._timeout)
            if not queue._claim(self._claim, self._nbytes, deadline, self._timeout):
                raise QueueFull("too many reservations are open; publish or drop some first")
            at = queue.ring.body_at(self._claim.load(0) - 1)
            view = queue._memory.view(at, self._nbytes)
            self._view = view
            return view
        except BaseException:
            queue._unclaim(self._claim)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        queue = self._queue
        try:
            if self._view is not None:
                self._view.release()
            if error is None:
                self.seq = queue._publish(self._claim, self._nbytes, None, None)
        finally:
            queue._unclaim(self._claim)


def _flat(body: Any) -> memoryview | bytes:
    """A bytes-like object as contiguous bytes; TypeError if it is something else."""
    view = memoryview(body)
    return view.cast("B") if view.contiguous else view.tobytes()
