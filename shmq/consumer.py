# cython: annotation_typing=False
"""The consumers' side of a queue: lease messages, wait for them, settle them.

Bodies are copied outside the lock; a look at the row afterwards tells whether the lease lasted
that long. Nothing here runs in the background: a `get` finds out when a sweep is due (group.py).
"""

import weakref
from collections.abc import Iterable
from typing import Protocol

from persist.errors import CorruptRecord
from persist.prim import TID_MASK, Memory
from persist.record import HEADER_BYTES, peek_header
from shmq import layout as _layout
from shmq.clock import SECOND, Clock
from shmq.errors import QueueClosed, QueueEmpty, QueueNotFound, StaleReceipt
from shmq.lanes import Lane
from shmq.leases import CHUNK, Leases, Scratch
from shmq.lock import Guard
from shmq.message import Holder, Message
from shmq.ops import Ops
from shmq.settings import Settings
from shmq.signals import Bell
from shmq.undo import DamagedLog

SWEEP = 0.05  # s between looks for expiries and deaths while anything is in flight
SPINS = 2000  # looks at `published` before a consumer goes to sleep

_MUTEX = _layout.word(_layout.GROUP, "mutex")
_TID_MASK = TID_MASK
_FINISHED = _layout.word(_layout.GROUP, "finished")
_DELETED = _layout.word(_layout.GROUP, "deleted")
_SWEEP_AT = _layout.word(_layout.GROUP, "sweep_at")
_ITEM_SLEEPS = _layout.word(_layout.GROUP, "item_sleeps")
_SPACE_WAKES = _layout.word(_layout.GROUP, "space_wakes")
_PUBLISHED = _layout.word(_layout.QUEUE, "published")
_ITEM_WAKES = _layout.word(_layout.QUEUE, "item_wakes")
_SPACE_SLEEPS = _layout.word(_layout.QUEUE, "space_sleeps")
_SPACE_WANTED = _layout.word(_layout.QUEUE, "space_wanted")
_ROW_WORDS = _layout.words(_layout.ROW)
_ROW_SEQ = _layout.word(_layout.ROW, "seq")
_ROW_POSITION = _layout.word(_layout.ROW, "position")
_ROW_SIZE = _layout.word(_layout.ROW, "bytes")
_ROW_DELIVERIES = _layout.word(_layout.ROW, "deliveries")
_NACK, _REJECT = _layout.NACK, _layout.REJECT
_HEADER_BYTES = HEADER_BYTES
_SECOND = SECOND
_SWEEP_NS = int(SWEEP * SECOND)
_SPINS = SPINS
_CHUNK = CHUNK

# What a handle is in.
OPEN, CLOSED, FORKED = range(3)


class Upkeep(Protocol):
    """What a group needs of its queue now and then."""

    def dead_owners(self) -> list[int]:
        """The owners whose process is gone."""

    def bury(self, owners: list[int]) -> None:
        """Free what dead owners had of the queue segment."""

    def attach_again(self) -> None:
        """Become usable in a forked child."""


class Consumer(Holder):
    """What consumers of one process share: the group segment and the queue's records."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        items: Bell,
        space: Bell,
        queue: Upkeep,
    ) -> None:
        self._max_deliveries = settings.max_deliveries
        self._visibility = int(settings.visibility * SECOND)
        self._backoff = settings.backoff
        self._clock = clock
        self._items = items
        self._space = space
        # Weak: a handle that is dropped goes at once, mapping and all, without the collector.
        self._queue = weakref.proxy(queue)
        # Some in stock: a list that never runs empty is never reallocated.
        self._scratches: list[Scratch] = [Scratch(), Scratch(), Scratch()]
        self._tickets: list[int] = []
        self.owner = 0
        self.state = FORKED

    def assemble(
        self,
        memory: Memory,
        queue_memory: Memory,
        plan: _layout.GroupPlan,
        queue_plan: _layout.QueuePlan,
    ) -> None:
        """Lay everything that touches shared memory over these segments."""
        self._memory = memory
        self._queue_memory = queue_memory
        self.guard = Guard(
            memory,
            _layout.word(_layout.GROUP, "mutex"),
            _layout.word(_layout.GROUP, "undo_count"),
            _layout.word(_layout.GROUP, "cursor"),
        )
        self._mutex = self.guard.mutex
        self._lane = Lane(
            queue_memory, queue_plan.index_at, queue_plan.index_entries, queue_plan.ring_bytes
        )
        self.leases = Leases(
            memory,
            self.guard.undo,
            Ops(memory, plan.ops_at),
            self._lane,
            plan.rows_at,
            plan.rows,
            self._max_deliveries,
        )
        self.guard.rebuild = self.leases.rebuild
        self._rows_at = plan.rows_at >> 3
        self._ring_at = queue_plan.ring_at
        self._ring_bytes = queue_plan.ring_bytes
        self._tickets = []

    # Getting

    def get(self, timeout: float | None = None) -> Message:
        """Lease the next message, waiting for one; QueueEmpty when the time is up."""
        if self.state:
            self.check_open()
        try:
            scratch = self._scratches.pop()
        except IndexError:
            scratch = Scratch()
        count = self._take(scratch, 1, self._clock.monotonic())
        message = self._message(scratch, 0) if count else None
        self._scratches.append(scratch)
        if message is not None:
            return message
        return self._get_many_slowly(1, timeout)[0]

    def get_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Lease up to `limit` messages, waiting for the first; QueueEmpty as `get`."""
        if limit < 1:
            raise ValueError(f"limit={limit!r} must be at least 1")
        if self.state:
            self.check_open()
        messages = self._try_get_many(limit)
        if messages:
            return messages
        return self._get_many_slowly(limit, timeout)

    def _try_get_many(self, limit: int) -> list[Message]:
        messages = []
        scratch = self._scratch()
        while limit:
            count = self._take(scratch, limit, self._clock.monotonic())
            if count == 0:
                break
            limit -= count
            for n in range(count):
                message = self._message(scratch, n)
                if message is not None:
                    messages.append(message)
        self._scratches.append(scratch)
        return messages

    def _scratch(self) -> Scratch:
        """Scratch that no other call is using; given back by appending it again."""
        try:
            return self._scratches.pop()
        except IndexError:
            return Scratch()

    def _take(self, scratch: Scratch, limit: int, now: int) -> int:
        """Lease into scratch; the group's lock is taken and released here."""
        memory = self._memory
        is_sweeping = False
        count = 0
        if memory.load(_MUTEX) & _TID_MASK:
            self.guard.check()
        try:
            self.guard.enter()
            if now >= memory.load(_SWEEP_AT):
                if memory.load(_DELETED):
                    self._gone()
                memory.store(_SWEEP_AT, now + _SWEEP_NS)
                is_sweeping = True
            try:
                count = self.leases.take(scratch, limit, now + self._visibility, self.owner)
            except DamagedLog:
                self.guard.mend()
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        if is_sweeping:
            self.sweep(now)
        return count

    def _message(self, scratch: Scratch, n: int) -> Message | None:
        """The n-th message of the scratch as an object; None if its lease was lost already."""
        memory = self._memory
        queue_memory = self._queue_memory
        header = scratch.header
        row = scratch.memory.load(2 * n)
        tag = scratch.memory.load(2 * n + 1)
        at = self._rows_at + row * _ROW_WORDS
        seq = memory.load(at + _ROW_SEQ)
        position = memory.load(at + _ROW_POSITION)
        size = memory.load(at + _ROW_SIZE)
        deliveries = memory.load(at + _ROW_DELIVERIES)
        place = self._ring_at + position % self._ring_bytes
        try:
            peek_header(queue_memory, place, place + size, header)
            if header.seq != seq:
                raise CorruptRecord(f"message {seq} has the record of {header.seq}")
        except CorruptRecord:
            if memory.load(at) != tag:
                return None
            raise
        body = queue_memory.copy_out(place + _HEADER_BYTES + header.fields_bytes, header.body_bytes)
        # The bytes were ours for as long as the lease was: if it is, they were.
        if memory.load(at) != tag:
            return None
        message = Message.__new__(Message)
        message._holder = self
        message._row = row
        message._tag = tag
        message._is_settled = False
        message.seq = seq
        message.body = body
        message.timestamp = header.timestamp
        message.deliveries = deliveries
        return message

    def _get_many_slowly(self, limit: int, timeout: float | None) -> list[Message]:
        deadline = None if timeout is None else self._clock.monotonic() + int(timeout * _SECOND)
        while True:
            if self.state:
                self.check_open()
            seen = self._queue_memory.load(_PUBLISHED)
            messages = self._try_get_many(limit)
            if messages:
                return messages
            now = self._clock.monotonic()
            if deadline is not None and now >= deadline:
                raise QueueEmpty(f"no message within {timeout} s")
            if self._queue_memory.spin(_PUBLISHED, seen, _SPINS):
                continue
            until = max(self._memory.load(_SWEEP_AT), now + 1_000_000)
            if deadline is not None:
                until = min(until, deadline)
            self._sleep(seen, (until - now) / _SECOND)

    def _sleep(self, seen: int, seconds: float) -> None:
        """Wait on the items semaphore, with a ticket that asks producers to post it.

        A ticket is the number of a sleep; producers post while there are more sleeps than
        wakes. A ticket that nobody has answered is used again, so that waiting in vain does
        not add up to posts. Dying here costs one surplus post.
        """
        ticket = 0
        while self._tickets and not ticket:
            ticket = self._tickets.pop()
            if self._queue_memory.load(_ITEM_WAKES) >= ticket:
                ticket = 0
        if not ticket:
            self.guard.check()
            try:
                self.guard.enter()
                ticket = self._memory.load(_ITEM_SLEEPS) + 1
                self._memory.store(_ITEM_SLEEPS, ticket)
                self._mutex.release()
            except BaseException:
                self._mutex.abandon()
                raise
        # The release was a full fence: either we see the message, or its producer sees us.
        if self._queue_memory.load(_PUBLISHED) == seen and self.state == OPEN:
            self._items.wait(seconds)
        if self._queue_memory.load(_ITEM_WAKES) < ticket:
            self._tickets.append(ticket)

    # Settling

    def acknowledge(self, row: int, tag: int) -> None:
        """Finish one message; StaleReceipt if the lease was lost."""
        finished = 0
        if self.state:
            self.check_open()
        try:
            scratch = self._scratches.pop()
        except IndexError:
            scratch = Scratch()
        scratch.keep(0, row, tag)
        if self._memory.load(_MUTEX) & _TID_MASK:
            self.guard.check()
        try:
            self.guard.enter()
            finished = self.leases.finish(scratch, 1)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        self._scratches.append(scratch)
        if finished == 0:
            raise StaleReceipt(*self._stale(row, tag))
        self._wake_producer()

    def ack_many(self, messages: Iterable[Message]) -> None:
        """Finish messages; StaleReceipt, after the others, names those whose lease was lost."""
        if self.state:
            self.check_open()
        batch = list(messages)
        lost: list[int] = []
        scratch = self._scratch()
        start = 0
        while start < len(batch):
            start = self._finish_chunk(scratch, batch, start, lost)
        self._scratches.append(scratch)
        self._wake_producer()
        if lost:
            raise StaleReceipt(
                f"{len(lost)} of {len(batch)} leases were lost; the others are settled",
                tuple(lost),
            )

    def _finish_chunk(
        self, scratch: Scratch, batch: list[Message], start: int, lost: list[int]
    ) -> int:
        """Finish up to CHUNK messages from `start` on; where the next chunk starts."""
        end = min(start + _CHUNK, len(batch))
        for n in range(start, end):
            message = batch[n]
            scratch.keep(n - start, message._row, message._tag)
        self.guard.check()
        try:
            self.guard.enter()
            self.leases.finish(scratch, end - start)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        for n in range(start, end):
            message = batch[n]
            message._is_settled = True
            if (scratch.stale >> (n - start)) & 1:
                lost.append(message.receipt)
        return end

    def put_back(self, row: int, tag: int, delay: float | None, reason: str) -> None:
        """Have a message delivered again after `delay` seconds; None: the queue's backoff."""
        if delay is not None and not 0 <= delay <= 315_360_000:
            raise ValueError(f"delay={delay!r} must be within 0 s and ten years")
        now = self._clock.monotonic()
        if delay is None:
            delay = self._backoff_of(row)
        due = now + int(delay * _SECOND) if delay else 0
        self._settle(row, tag, _NACK, due)

    def _backoff_of(self, row: int) -> float:
        first, factor, cap = self._backoff
        deliveries = self.leases.deliveries(row)
        # Bounded before it is raised: a float overflows long before a count does.
        return min(cap, first * factor ** min(deliveries - 1, 64))

    def give_up(self, row: int, tag: int, reason: str) -> None:
        """Keep a message as dead."""
        self._settle(row, tag, _REJECT, 0)

    def _settle(self, row: int, tag: int, kind: int, due: int) -> None:
        done = False
        if self.state:
            self.check_open()
        self.guard.check()
        try:
            self.guard.enter()
            done = self.leases.give_back(row, tag, kind, due)
            if due and due < self._memory.load(_SWEEP_AT):
                self._memory.store(_SWEEP_AT, due)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        if not done:
            raise StaleReceipt(*self._stale(row, tag))
        if not due and kind == _NACK:
            self._wake_consumer()

    def prolong(self, row: int, tag: int, seconds: float) -> None:
        """Let a lease run for `seconds` from now."""
        if not 0 <= seconds <= 43_200:
            raise ValueError(f"seconds={seconds!r} must be within 0 s and 12 h")
        done = False
        if self.state:
            self.check_open()
        self.guard.check()
        try:
            self.guard.enter()
            done = self.leases.extend(row, tag, self._clock.monotonic() + int(seconds * _SECOND))
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        if not done:
            raise StaleReceipt(*self._stale(row, tag))

    def _stale(self, row: int, tag: int) -> tuple[str, tuple[int]]:
        receipt = ((tag >> 8) << 24) | row
        return (
            f"receipt {receipt} is no longer valid: its lease ran out or it was settled "
            "before; the message may be with another consumer",
            (receipt,),
        )

    # Waking

    def _wake_consumer(self) -> None:
        """Post one sleeper for a message that came back."""
        if self._memory.load(_ITEM_SLEEPS) > self._queue_memory.load(_ITEM_WAKES):
            self._items.ring()

    def _wake_producer(self) -> None:
        """Post a producer that waits for space, once enough was finished to be worth it."""
        queue_memory = self._queue_memory
        memory = self._memory
        if queue_memory.load(_SPACE_SLEEPS) > memory.load(_SPACE_WAKES):
            self._post_producer()

    def _post_producer(self) -> None:
        is_due = False
        self.guard.check()
        try:
            self.guard.enter()
            wakes = self._memory.load(_SPACE_WAKES)
            if self._queue_memory.load(_SPACE_SLEEPS) > wakes and self._memory.load(
                _FINISHED
            ) >= self._queue_memory.load(_SPACE_WANTED):
                self._memory.store(_SPACE_WAKES, wakes + 1)
                is_due = True
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        if is_due:
            self._space.ring()

    def sweep(self, now: int) -> None:
        """Return what is overdue; the group knows how."""
        raise NotImplementedError

    def check_open(self) -> None:
        """QueueClosed on a closed handle; attaches again in a forked child."""
        if self.state == CLOSED:
            raise QueueClosed("this handle of the queue is closed")
        if self.state == FORKED:
            self._queue.attach_again()

    def _gone(self) -> None:
        raise QueueNotFound("the queue was deleted while this process was attached to it")
