# cython: annotation_typing=False
"""A queue as one process holds it: opened, used, inherited by a fork, closed, deleted."""

import os
import weakref
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from persist.prim import Memory
from shmq import layout as _layout
from shmq import memory as _segments
from shmq.clock import Clock
from shmq.consumer import CLOSED, FORKED, OPEN
from shmq.errors import LayoutMismatch, QueueInUse, QueueNotFound, ShmqError
from shmq.group import Group
from shmq.lanes import Lane
from shmq.lock import Guard
from shmq.message import Message
from shmq.participants import Participants, liveness
from shmq.producer import Producer
from shmq.ring import Ring
from shmq.signals import Bell
from shmq.stats import Stats

_DELETED = _layout.word(_layout.QUEUE, "deleted")
_PUBLISHED = _layout.word(_layout.QUEUE, "published")
_RECOVERIES = _layout.word(_layout.QUEUE, "recoveries")

# Every open queue of this process, so that a forked child can attach anew.
_open_queues: weakref.WeakSet[Any] = weakref.WeakSet()


class Queue(Producer):
    """A named queue in shared memory; made by `shmq.open`.

    Any number of threads and processes may use it at once, also after a fork. It can be
    pickled: the other process attaches to the same queue.
    """

    def __init__(self, name: str, segments: _segments.Segments, clock: Clock) -> None:
        self.name = name
        self.settings = segments.settings
        self._segments = segments
        self._clock = clock
        self._max_message = segments.settings.max_message
        self._max_batch = segments.settings.ring_bytes // 4
        self._space = Bell(_segments.semaphore(name, "space"))
        self._items = Bell(_segments.semaphore(name, "items"))
        self._tickets = []
        self._owner = 0
        self._group = Group(segments.settings, clock, self._items, self._space, self)
        self.attach_again()
        _open_queues.add(self)

    def attach_again(self) -> None:
        """Lay the working objects over the mapped segments and join the participants.

        At opening, and again in a forked child: the inherited objects may belong to a call
        that the fork interrupted, so they are disowned and replaced.
        """
        plan = self._segments.queue_plan
        self._memory = Memory(self._segments.queue_map)
        self._group_memory = Memory(self._segments.group_map)
        self.guard = Guard(
            self._memory,
            _layout.word(_layout.QUEUE, "mutex"),
            _layout.word(_layout.QUEUE, "undo_count"),
            _layout.word(_layout.QUEUE, "tail"),
        )
        self._mutex = self.guard.mutex
        lane = Lane(self._memory, plan.index_at, plan.index_entries, plan.ring_bytes)
        self.ring = Ring(
            self._memory,
            self.guard.undo,
            lane,
            plan.ring_at,
            plan.ring_bytes,
            plan.index_entries,
            plan.reservations_at,
        )
        self.participants = Participants(self._memory, self.guard.undo, plan.participants_at)
        self._group.assemble(self._group_memory, self._memory, self._segments.group_plan, plan)
        self.guard.rebuild = self.ring.rebuild
        self._tickets = []
        self._join()
        if not self._owner:
            # Every row is taken, perhaps by processes that died and nobody has missed yet.
            self._group.sweep(self._clock.monotonic())
            self._join()
        if not self._owner:
            raise ShmqError(
                f"{_layout.PARTICIPANTS} handles are attached to queue {self.name!r}, which is "
                "the limit; close some"
            )
        self._group.owner = self._owner
        self._group.state = OPEN

    def _join(self) -> None:
        pid = os.getpid()
        started = liveness.started(pid)
        self.guard.check()
        try:
            self.guard.enter()
            if self._memory.load(_DELETED):
                raise QueueNotFound(f"queue {self.name!r} was deleted")
            self._owner = self.participants.join(pid, started)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise

    def _after_fork(self) -> None:
        """In a forked child: nothing inherited may touch shared memory again."""
        self._memory.disown()
        self._group_memory.disown()
        if self._group.state != CLOSED:
            self._group.state = FORKED

    # Getting

    def get(self, timeout: float | None = None) -> Message:
        """Lease the next message, waiting for one; QueueEmpty when the time is up."""
        return self._group.get(timeout)

    def get_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Lease up to `limit` messages, waiting for the first; QueueEmpty as `get`."""
        return self._group.get_many(limit, timeout)

    def ack(self, messages: Message | Iterable[Message], *, sync: bool = False) -> None:
        """Finish one message or many; StaleReceipt names those whose lease was lost."""
        if isinstance(messages, Message):
            messages.ack()
        else:
            self._group.ack_many(messages)

    def nack(
        self, messages: Message | Iterable[Message], *, delay: float | None = None, reason: str = ""
    ) -> None:
        """Have one message or many delivered again."""
        for message in _each(messages):
            message.nack(delay=delay, reason=reason)

    def reject(self, messages: Message | Iterable[Message], *, reason: str = "") -> None:
        """Give one message or many up: kept as dead, not delivered again."""
        for message in _each(messages):
            message.reject(reason=reason)

    def extend(self, messages: Message | Iterable[Message], seconds: float) -> None:
        """Let the leases run for `seconds` from now."""
        for message in _each(messages):
            message.extend(seconds)

    def __iter__(self) -> Iterator[Message]:
        while self._group.state != CLOSED:
            try:
                yield self.get()
            except ShmqError:
                if self._group.state == CLOSED:
                    return
                raise

    # Upkeep

    def dead_owners(self) -> list[int]:
        """The owners whose process is gone."""
        return self.participants.dead()

    def bury(self, owners: list[int]) -> None:
        """Free what owners that are gone had of the ring, and their rows; their leases are back."""
        for owner in owners:
            for slot in range(_layout.RESERVATIONS):
                if self.ring.slot_owner(slot) == owner:
                    self.guard.check()
                    try:
                        self.guard.enter()
                        if self.ring.slot_owner(slot) == owner:
                            self.ring.drop(slot, self.ring.slot_tag(slot))
                        self._mutex.release()
                    except BaseException:
                        self._mutex.abandon()
                        raise
            self._leave(owner)

    def _leave(self, owner: int) -> None:
        self.guard.check()
        try:
            self.guard.enter()
            self.participants.leave(owner)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise

    def stats(self) -> Stats:
        """The counts of this instant."""
        if self._group.state:
            self._group.check_open()
        puts = 0
        recoveries = 0
        self.guard.check()
        try:
            self.guard.enter()
            puts = self._memory.load(_PUBLISHED)
            recoveries = self._memory.load(_RECOVERIES)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise
        return self._group.stats(puts, recoveries, len(self.participants.attached()))

    def mark_deleted(self) -> None:
        """Make every later call of any process fail: the names are about to go."""
        self._group.mark_deleted()
        self.guard.check()
        try:
            self.guard.enter()
            # One word, from 0 to 1, that nothing else depends on: its own transaction.
            self._memory.store(_DELETED, 1)
            self._mutex.release()
        except BaseException:
            self._mutex.abandon()
            raise

    def close(self) -> None:
        """Leave the queue: open leases go back at once. May be called twice."""
        state = self._group.state
        if state == CLOSED:
            return
        self._group.state = CLOSED
        _open_queues.discard(self)
        if state == OPEN:
            # In this order: an owner who has left is not looked for any more. Interrupted in
            # between, the row stays, and what it holds is returned when the process ends.
            self._group.hand_back(self._owner)
            self.bury([self._owner])
            self._items.ring()

    def __enter__(self) -> "Queue":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (attach, (self.name,))

    def __repr__(self) -> str:
        state = ("open", "closed", "forked")[self._group.state]
        return f"<Queue {self.name!r} in memory, {state}>"


def attach(
    name: str,
    given: dict[str, Any] | None = None,
    *,
    create: bool = False,
    clock: Clock | None = None,
) -> Queue:
    """The memory queue of this name; made if it is absent and `create` says so."""
    for _ in range(8):
        segments = _segments.attach(name, given or {}, create=create)
        try:
            return Queue(name, segments, clock or Clock())
        except (QueueNotFound, FileNotFoundError):
            # Deleted between finding and joining it: what is there now is another queue.
            continue
    raise QueueNotFound(
        f"queue {name!r} has lost its semaphores, or is deleted and made again all the time; "
        "remove what is left of it with shmq.delete(..., force=True)"
    )


def delete(name: str, *, force: bool) -> None:
    """Remove a memory queue; QueueInUse while living processes are attached, unless forced."""
    try:
        queue = attach(name)
    except (LayoutMismatch, QueueNotFound):
        if not force:
            raise
        _segments.delete(name)
        return
    others = [pid for owner, pid in queue.participants.alive() if owner != queue._owner]
    if others and not force:
        queue.close()
        shown = ", ".join(map(str, sorted(set(others))[:8]))
        raise QueueInUse(
            f"queue {name!r} is in use by pid {shown}; close it there or pass force=True"
        )
    queue.mark_deleted()
    queue.close()
    _segments.delete(name)


def _each(messages: Message | Iterable[Message]) -> list[Message]:
    return [messages] if isinstance(messages, Message) else list(messages)


def _forked() -> None:
    for queue in list(_open_queues):
        queue._after_fork()


os.register_at_fork(after_in_child=_forked)
