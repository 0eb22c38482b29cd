"""A tiny real queue that can be put back to any earlier moment, and whose stores are recorded.

Three handles on one queue in shared memory: `mine` works; `other` is another process as far
as the queue can tell (it has its own pid) and may come, go and die; `rescuer` is attached to
nothing and only takes the locks, as whoever comes next does after a death.

What a handle knows for itself (free stretches seen, `published` seen) would be wrong after
the bytes were put back, so handles are then laid over them anew, as after a fork.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any

import numpy as np

from persist.format import offset
from shmq import QueueEmpty, QueueFull, layout
from shmq.clock import SECOND, Clock
from shmq.message import Message
from shmq.participants import liveness
from shmq.queue import Queue, attach, delete
from shmq.signals import Bell
from tests.crash.invariants import Picture

OTHER_PID = 2**22 + 1  # beyond every pid that Linux gives out

Store = tuple[int, int, int | bytes]  # segment (0: queue, 1: group), byte offset, value

# The locks are the only bytes that replaying must not touch: whoever takes one writes there.
_MUTEX_AT = tuple(offset(dtype, "mutex") for dtype in (layout.QUEUE, layout.GROUP))
_MUTEX_END = tuple(at + 64 for at in _MUTEX_AT)


@lru_cache(maxsize=4096)
def body_of(seq: int, length: int) -> bytes:
    """The body a message is put with here: told by its seq, so that any can be compared."""
    return random.Random(seq).randbytes(length)


@dataclass(frozen=True)
class State:
    """A moment to come back to."""

    images: tuple[bytes, bytes]
    now: int
    mine: int  # the owner numbers of the two handles; 0: not attached
    other: int
    is_other_dead: bool
    held: tuple[Message, ...]
    held_by_other: tuple[Message, ...]
    settled: Message | None


class _Tap(list[Any]):
    """What Memory.trace is set to: it passes the stores of one segment on to a common log."""

    def __init__(self, log: list[Store], segment: int) -> None:
        super().__init__()
        self._log = log
        self._segment = segment

    def append(self, store: Any, /) -> None:
        self._log.append((self._segment, *store))


class World:
    """The queue, its handles, and the doors to time and to other processes."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.clock = Clock()
        self.clock.freeze()
        self._doors: tuple[Any, ...] = ()
        self._pid = os.getpid()
        self._log: list[Store] | None = None
        self._opening: Queue | None = None
        self.is_other_dead = False
        self._open_doors()
        self.mine = attach(name, settings, create=True, clock=self.clock)
        with self.as_other():
            self.other = attach(name, clock=self.clock)
            self.other.close()
        self._heir = attach(name, clock=self.clock)
        self._heir.close()
        self._rescuer = attach(name, clock=self.clock)
        self._rescuer.close()
        self._rescuer.guard.rebuild = self._rescuer._group.guard.rebuild = _refuse
        segments = self._rescuer._segments
        self.maps = (segments.queue_map, segments.group_map)
        self._views = tuple(memoryview(segment) for segment in self.maps)
        self._words = self._views[0].cast("Q")
        self._group_words = self._views[1].cast("Q")
        self._tags_at = segments.queue_plan.participants_at // 8
        self._rows_at = segments.group_plan.rows_at // 8
        self.other_owner = 0
        self.held: list[Message] = []
        self.held_by_other: list[Message] = []
        self.settled: Message | None = None  # one whose receipt is good for nothing any more
        self.empty = self.capture()

    # Doors

    def _open_doors(self) -> None:
        self._doors = (os.getpid, Bell.wait, Bell.ring)
        vars(liveness)["started"] = self._started
        os.getpid = lambda: self._pid
        # Sleeping takes no time here, but the clock moves as if it had.
        Bell.wait = lambda bell, seconds: self.advance(seconds)  # type: ignore
        Bell.ring = lambda bell: None  # type: ignore

    def __enter__(self) -> "World":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.write(self.empty.images)
        os.getpid, Bell.wait, Bell.ring = self._doors  # type: ignore[method-assign]
        del vars(liveness)["started"]
        delete(self.name, force=True)

    def _started(self, pid: int) -> int:
        if self._opening is not None and self._log is not None:
            # Asked between the making of a handle's Memory and its first store.
            self._tap(self._opening, self._log)
        return 0 if pid == OTHER_PID and self.is_other_dead else 1

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self.clock.advance(seconds)

    @contextmanager
    def as_other(self) -> Iterator[None]:
        """Act as the other process."""
        mine, self._pid = self._pid, OTHER_PID
        try:
            yield
        finally:
            self._pid = mine

    # Moments

    def capture(self) -> State:
        """This moment."""
        images = (bytes(self.maps[0]), bytes(self.maps[1]))
        tag = self._words[self._tags_at + (self.other_owner & 0xFFFF) * 8]
        if tag != (self.other_owner >> 16) << 8 | layout.ACTIVE:
            self.other_owner = 0
        return State(
            images,
            self.clock.monotonic(),
            self.mine._owner,
            self.other_owner,
            self.is_other_dead,
            tuple(self.held),
            tuple(self.held_by_other),
            self.settled,
        )

    def restore(self, state: State) -> None:
        """Back to a moment, with handles that know nothing yet."""
        self.write(state.images)
        self._rejoin(self.mine, state.mine)
        if state.other:
            with self.as_other():
                self._rejoin(self.other, state.other)
        self.write(state.images)
        self.other_owner = state.other
        self.is_other_dead = state.is_other_dead
        self.held = list(state.held)
        self.held_by_other = list(state.held_by_other)
        self.settled = state.settled
        self.set_clock(state.now)

    def set_clock(self, now: int) -> None:
        """Move the clock to a moment, forward or back."""
        ns = now - self.clock.monotonic()
        # The clock cuts fractions of a nanosecond off; half of one makes up for rounding.
        self.clock.advance((ns + (0.5 if ns > 0 else -0.5)) / SECOND)
        assert self.clock.monotonic() == now

    def _rejoin(self, handle: Queue, owner: int) -> None:
        """Lay a handle over the segments anew, as the same participant as before."""
        for slot in range(owner & 0xFFFF):
            self._words[self._tags_at + 8 * slot] |= layout.ACTIVE
        tag = ((owner >> 16) - 1) << 8 | layout.FREE
        self._words[self._tags_at + 8 * (owner & 0xFFFF)] = tag
        handle.attach_again()
        assert handle._owner == owner

    def write(self, images: tuple[bytes | bytearray, bytes | bytearray]) -> None:
        """Put both segments' bytes, all but their locks."""
        for view, image, start, end in zip(self._views, images, _MUTEX_AT, _MUTEX_END, strict=True):
            view[:start] = image[:start]
            view[end:] = image[end:]

    def is_showing(self, images: tuple[bytearray, bytearray]) -> bool:
        """Whether the segments hold these bytes, all but their locks."""
        return all(
            view[:start] == image[:start] and view[end:] == image[end:]
            for view, image, start, end in zip(
                self._views, images, _MUTEX_AT, _MUTEX_END, strict=True
            )
        )

    def picture(self) -> Picture:
        """What the segments say."""
        return Picture(*self.maps)

    # Recording

    def _tap(self, handle: Queue, log: list[Store] | None) -> None:
        handle._memory.trace = None if log is None else _Tap(log, 0)
        handle._group_memory.trace = None if log is None else _Tap(log, 1)

    @contextmanager
    def recording(self) -> Iterator[list[Store]]:
        """Every store of both handles, in order, whatever they do inside."""
        log: list[Store] = []
        self._log = log
        for handle in (self.mine, self.other):
            self._tap(handle, log)
        try:
            yield log
        finally:
            self._log = None
            for handle in (self.mine, self.other):
                self._tap(handle, None)

    def recover(self) -> list[Store]:
        """Take each lock once, as whoever comes next does; the stores this made."""
        log: list[Store] = []
        self._tap(self._rescuer, log)
        for guard in (self._rescuer.guard, self._rescuer._group.guard):
            try:
                guard.enter()
            finally:
                guard.leave()
        return log

    def drain(self, seconds: float) -> dict[int, bytes]:
        """Somebody new attaches, puts one, waits, and gets and acks all there is."""
        self._heir.attach_again()
        try:
            self._heir.put(body_of(self.next_seq(), 64), timeout=0)
        except QueueFull:
            pass
        self.advance(seconds)
        found = {}
        try:
            while True:
                messages = self._heir.get_many(4, timeout=0)
                found.update({message.seq: message.body for message in messages})
                self._heir.ack(messages)
        except QueueEmpty:
            return found

    # What operations need beyond the public interface

    def forget_lost(self) -> None:
        """Move messages whose lease was lost out of those held; the last one is kept."""
        for messages in (self.held, self.held_by_other):
            for message in list(messages):
                generation, row = message.receipt >> 24, message.receipt & 0xFFFFFF
                tag = self._group_words[self._rows_at + row * layout.words(layout.ROW)]
                if tag != generation << 8 | layout.LEASED:
                    messages.remove(message)
                    self.settled = message

    def next_seq(self) -> int:
        """The seq of the next message."""
        return self._words[layout.word(layout.QUEUE, "published")]

    def fill(self, handle: Queue, view: memoryview, body: bytes) -> None:
        """Write a reserved body; recorded too, though it goes past Memory."""
        base = np.frombuffer(handle._segments.queue_map, np.uint8).ctypes.data
        at = int(np.frombuffer(view, np.uint8).ctypes.data - base)
        if self._log is not None:
            self._log.append((0, at, body))
        view[:] = body

    def open_other(self) -> None:
        """The other process attaches; `started` sees to it that its first store is recorded."""
        self.is_other_dead = False
        self._opening = self.other
        try:
            with self.as_other():
                self.other.attach_again()
        finally:
            self._opening = None
        self.other_owner = self.other._owner


def _refuse() -> None:
    raise AssertionError("a death left an undo log that makes no sense")


def apply(images: tuple[bytearray, bytearray], store: Store) -> None:
    """Carry out one recorded store."""
    segment, at, value = store
    data = value if isinstance(value, bytes) else value.to_bytes(8, "little")
    images[segment][at : at + len(data)] = data
