"""A queue in one state, an operation killed in it again and again, and the verdict on each.

After every kill each lock is taken once, as whoever comes next does. Then the bytes must be
those of a queue in order, in a state that the operation passes through between two of its
transactions; and every image of memory that comes up, once, is used up by a fresh handle.
"""

import gc
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persist.format import offset
from shmq import layout
from shmq.clock import Clock
from shmq.errors import QueueEmpty, ShmqError
from shmq.queue import Queue, attach, delete
from tests.crash.invariants import Picture, Row

from .operations import NOBODY, SETTINGS, VISIBILITY, Case, body_of, participants
from .stepper import Operation, Point, Stepper

_TRIES = 3  # to get a twin to an instruction, should it take another way
_MUTEX_AT = (offset(layout.QUEUE, "mutex"), offset(layout.GROUP, "mutex"))
_MUTEX_END = tuple(at + 64 for at in _MUTEX_AT)


@dataclass
class Report:
    """What came of killing an operation everywhere."""

    instructions: int
    kills: int = 0
    in_lock: int = 0
    in_transaction: int = 0
    images: int = 0
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.instructions:6,} instructions {self.kills:6,} kills ({self.in_lock:,} in the "
            f"lock, {self.in_transaction:,} in a transaction), {self.images:,} images used up, "
            f"{len(self.broken)} broken, {self.seconds:.1f} s"
        )


class Rig:
    """The queue, its saved bytes, and what is done to it."""

    def __init__(self, queue: Queue, stepper: Stepper, operation: Operation) -> None:
        self.operation = operation
        self.stepper = stepper
        self.victim: tuple[Operation, Point] | None = None  # somebody killed beforehand
        self._queue = queue
        self._guards = (queue.guard, queue._group.guard)
        for guard in self._guards:
            guard.rebuild = _refuse
        self._maps = (queue._segments.queue_map, queue._segments.group_map)
        self._participants = participants(queue)
        self._saved = (bytes(self._maps[0]), bytes(self._maps[1]))
        self._verdicts: dict[bytes, tuple[Any, list[str]]] = {}

    def restore(self) -> None:
        """Everything as it was, and then the victim's death, if there is one."""
        for segment, saved, start, end in zip(
            self._maps, self._saved, _MUTEX_AT, _MUTEX_END, strict=True
        ):
            segment[:start] = saved[:start]
            segment[end:] = saved[end:]
        if self.victim is not None:
            assert self.stepper.kill_at(*self.victim)[1]

    def content(self) -> tuple[Any, ...]:
        """The state of the queue at this instant."""
        return Picture(*self._maps).content()

    def is_armed(self) -> bool:
        """Whether an undo log is."""
        return any(Picture(*self._maps).undo_counts)

    def deaths(self) -> int:
        """How many holders of a lock were found dead so far."""
        return sum(guard.deaths for guard in self._guards)

    def recover(self) -> list[str]:
        """Take each lock and let it go; what is wrong with it."""
        for guard in self._guards:
            try:
                guard.enter()
            except (ShmqError, AssertionError) as error:
                return [f"the lock: {error!r}"]
            finally:
                guard.leave()
            if guard.mutex.holder():
                return [f"the lock is still held by {guard.mutex.holder()}"]
        return []

    def judge(self) -> tuple[Any, list[str]]:
        """The state after a recovery, and what is wrong with it."""
        # Those who were attached are dead; that they all have one pid makes images comparable.
        self._participants["pid"], self._participants["started"] = NOBODY, 1
        digest = hashlib.blake2b(digest_size=16)
        for segment, start, end in zip(self._maps, _MUTEX_AT, _MUTEX_END, strict=True):
            digest.update(segment[:start])
            digest.update(segment[end:])
        image = digest.digest()
        if image not in self._verdicts:
            picture = Picture(*self._maps)
            problems = picture.problems(body_of) or self._use_up(picture)
            self._verdicts[image] = picture.content(), problems
            gc.collect()  # the handle: its mappings make every fork slower
        return self._verdicts[image]

    @property
    def images(self) -> int:
        """How many different images of memory were judged."""
        return len(self._verdicts)

    def _use_up(self, picture: Picture) -> list[str]:
        """Take and finish everything that is there, and one more; what went wrong."""
        rows = picture.live_rows()
        wanted = {entry.seq for entry in picture.unread} | {
            row.seq for row in rows if not _is_given_up(row)
        }
        clock = Clock()
        clock.freeze()
        clock.advance(3 * VISIBILITY)
        queue = attach(self._queue.name, clock=clock)
        taken: list[int] = []
        try:
            taken += _take_all(queue)
            queue.put(body_of(picture.queue["published"], 99), timeout=1)
            taken += _take_all(queue)
        except ShmqError as error:
            return [f"using it up: {error!r}"]
        wanted.add(picture.queue["published"])
        problems = []
        if sorted(taken) != sorted(wanted):
            problems.append(f"messages {sorted(taken)} instead of {sorted(wanted)}")
        stats = queue.stats()
        if (stats.ready, stats.in_flight, stats.waiting) != (0, 0, 0):
            problems.append(f"used up: {stats}")
        if stats.attached != 1:
            problems.append(f"{stats.attached} attached, all but one of them dead")
        rest = Picture(*self._maps)
        if any(slot.state == layout.RESERVED for slot in rest.slots):
            problems.append(f"lent to a dead process: {rest.slots}")
        queue.close()
        return problems + Picture(*self._maps).problems(body_of)


def _refuse() -> None:
    raise AssertionError("a death left an undo log that makes no sense")


def _is_given_up(row: Row) -> bool:
    """Whether a message is dead, or will be when the death of its holder is noticed."""
    is_last = row.deliveries >= SETTINGS["max_deliveries"]
    return row.state == layout.DEAD or (row.state == layout.LEASED and is_last)


def _take_all(queue: Queue) -> Iterator[int]:
    while True:
        try:
            message = queue.get(timeout=0)
        except QueueEmpty:
            return
        assert message.body == body_of(message.seq, len(message.body))
        message.ack()
        yield message.seq


@contextmanager
def rigged(name: str, library: Path, case: Case) -> Iterator[Rig]:
    """A queue brought to where the case's operation begins."""
    processors = os.sched_getaffinity(0)
    # On one processor a step is a switch of context; on two it is a wake-up, and takes thrice.
    os.sched_setaffinity(0, {min(processors)})
    clock = Clock()
    clock.freeze()
    queue = attach(name, {**SETTINGS, **case.settings}, create=True, clock=clock)
    try:
        operation = case.prepare(queue, clock)
        segments = queue._segments
        gc.freeze()
        yield Rig(queue, Stepper(library, (segments.queue_map, segments.group_map)), operation)
    finally:
        gc.unfreeze()
        os.sched_setaffinity(0, processors)
        delete(name, force=True)


def kill_everywhere(rig: Rig, transactions: int, every: int = 1) -> Report:
    """Kill the operation at every `every`-th instruction; what was broken by that."""
    started = time.monotonic()
    rig.restore()
    assert rig.recover() == []
    states = {rig.content()}
    rig.restore()
    points, _ = rig.stepper.trace(rig.operation, lambda: states.add(rig.content()))
    states.add(rig.content())
    report = Report(len(points))
    if len(states) != transactions + 1:
        report.broken.append(f"{len(states)} states come of {transactions} transactions")
    deaths = rig.deaths()
    for point in points[::every]:
        for _ in range(_TRIES):
            rig.restore()
            _, is_there = rig.stepper.kill_at(rig.operation, point)
            report.in_transaction += rig.is_armed()
            problems = rig.recover()
            if not problems:
                content, problems = rig.judge()
                if not problems and content not in states:
                    problems = ["a state between those of the transactions"]
            report.kills += 1
            report.broken += [f"instruction {point.number}: {problem}" for problem in problems]
            if is_there:
                break
        else:
            report.broken.append(f"instruction {point.number} is not on every twin's way")
    report.in_lock = rig.deaths() - deaths
    report.images = rig.images
    report.seconds = time.monotonic() - started
    return report
