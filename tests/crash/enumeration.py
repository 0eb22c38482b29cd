"""A death after every store of every operation, and after every store of the recovery.

An operation is carried out once and its stores are recorded. Then, for every k, the bytes
from before it plus its first k stores are what a process leaves that is killed there: they
are put into the real segments, the next one takes the locks, and the result must obey every
invariant and be exactly the state at the operation's last commit before the death, or the
next one. Likewise after every store of that recovery, which must come to the same end.

Run as a program it explores a little and reports; the mutant tests do so.
"""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shmq import layout
from tests.crash.invariants import Picture
from tests.crash.operations import (
    BY_NAME,
    OPERATIONS,
    SETTINGS,
    STARTS,
    VISIBILITY,
    Operation,
)
from tests.crash.world import State, Store, World, apply, body_of

_COUNTS_AT = (
    layout.word(layout.QUEUE, "undo_count") * 8,
    layout.word(layout.GROUP, "undo_count") * 8,
)
_SHOWN = 20


@dataclass
class Report:
    """What was tried, and what broke."""

    states: int = 0
    operations: int = 0
    crash_points: int = 0
    recovery_points: int = 0
    takeovers: int = 0
    broken: int = 0
    examples: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def points(self) -> int:
        return self.crash_points + self.recovery_points

    def __str__(self) -> str:
        return (
            f"states {self.states:,}, operations {self.operations:,}, "
            f"crash points {self.crash_points:,}, in recovery {self.recovery_points:,}, "
            f"taken over {self.takeovers:,}, broken {self.broken:,}; "
            f"{time.monotonic() - self.started:.0f} s"
        )


class Stop(Exception):
    """Enough has been seen."""


class Enumeration:
    """Explores one queue, into one report."""

    def __init__(
        self,
        world: World,
        report: Report,
        *,
        takeover_every: int = 16,
        stops_at_once: bool = False,
        progress: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self._world = world
        self._report = report
        self._takeover_every = takeover_every
        self._stops_at_once = stops_at_once
        self._progress = progress
        self._path: list[str] = []

    # Exploring

    def breadth_first(self, depth: int) -> None:
        """Every operation in every state that `depth` operations reach from the starts."""
        frontier = []
        seen = set()
        for name, way in STARTS.items():
            self._world.restore(self._world.empty)
            for step in way:
                BY_NAME[step].run(self._world)
            frontier.append(([name], self._world.capture()))
            seen.add(self._key())
        for level in range(depth + 1):
            following = []
            for path, state in frontier:
                for reached, key in self._expand(path, state):
                    if key not in seen:
                        seen.add(key)
                        following.append(reached)
            if level < depth:
                frontier = following

    def _expand(self, path: list[str], state: State) -> list[tuple[tuple[list[str], State], Any]]:
        world = self._world
        found = []
        self._report.states += 1
        world.restore(state)
        for operation in [each for each in OPERATIONS if each.applies(world)]:
            world.restore(state)
            self._path = [*path, operation.name]
            self.crash(operation)
            found.append(((self._path, world.capture()), self._key()))
        return found

    def wander(self, steps: int, seed: int) -> None:
        """A long way at random, on handles that keep what they know, over many laps."""
        world = self._world
        chance = random.Random(seed)
        world.restore(world.empty)
        self._path = []
        for step in range(steps):
            if world.picture().group["dead"] > world.mine.settings.rows // 2:
                # What is dead stays; soon no row would be left to work with.
                world.restore(world.empty)
                self._path = []
            choice = [each for each in OPERATIONS if each.applies(world)]
            [operation] = chance.choices(choice, [each.weight for each in choice])
            self._path = [f"step {step} of seed {seed}", *self._path[-9:], operation.name]
            self._report.states += 1
            self.crash(operation)

    def _key(self) -> Any:
        """What makes a state worth exploring: its shape, not its numbers."""
        world = self._world
        picture = world.picture()
        now = world.clock.monotonic()
        return (
            [entry.bytes for entry in picture.unread],
            [picture.rows[row].deliveries for row in picture.ready],
            sorted(
                (row.state, row.deliveries, row.owner == world.mine._owner, row.due < now)
                for row in picture.live_rows()
            ),
            [(slot.state, slot.ordinal < picture.group["cursor"]) for slot in picture.slots],
            picture.queue["tail"] % picture.ring_bytes * 4 // picture.ring_bytes,
            len(picture.free),
            len(world.held),
            world.settled is None,
            world.other_owner == 0,
            world.is_other_dead,
        ).__repr__()

    # Crashing

    def crash(self, operation: Operation) -> None:
        """Carry an operation out, and die after each of its stores."""
        world = self._world
        before = world.capture()
        with world.recording() as log:
            operation.run(world)
        world.forget_lost()
        stores = list(log)
        after = world.capture()
        self._report.operations += 1
        commits, contents = self._commits(before, stores)
        images = (bytearray(before.images[0]), bytearray(before.images[1]))
        done = 0
        for k, store in enumerate(stores, 1):
            if isinstance(store[2], bytes) and len(store[2]) > 1:
                half = (*store[:2], store[2][: len(store[2]) // 2])
                apply(images, half)
                self._point(images, f"in the middle of store {k}", contents[done : done + 2])
            apply(images, store)
            done += k in commits
            where = f"after store {k} of {len(stores)}"
            self._point(images, where, contents[done : done + 2])
        world.write(after.images)
        self._progress(self._report)

    def _commits(self, before: State, stores: list[Store]) -> tuple[set[int], list[Any]]:
        """After which stores a transaction has ended, and the contents then; first: before."""
        world = self._world
        images = (bytearray(before.images[0]), bytearray(before.images[1]))
        commits = set()
        contents = [Picture(*images).content()]
        for k, store in enumerate(stores, 1):
            apply(images, store)
            if store[1] == _COUNTS_AT[store[0]] and store[2] == 0:
                commits.add(k)
                contents.append(Picture(*images).content())
        assert world.is_showing(images), "a store was not recorded"
        return commits, contents

    def _point(self, images: tuple[bytearray, bytearray], where: str, allowed: list[Any]) -> None:
        """One death, the recovery after it, and a death after each store of that."""
        self._report.crash_points += 1
        content, recovery = self._recover(images, where, allowed)
        if self._takeover_every and self._report.crash_points % self._takeover_every == 0:
            self._take_over(where)
        if not recovery:
            return
        again = (bytearray(images[0]), bytearray(images[1]))
        for j, store in enumerate(recovery, 1):
            apply(again, store)
            self._report.recovery_points += 1
            there = f"{where}, then after store {j} of {len(recovery)} of the recovery"
            self._recover(again, there, [content])

    def _recover(
        self, images: tuple[bytearray, bytearray], where: str, allowed: list[Any]
    ) -> tuple[Any, list[Store]]:
        world = self._world
        world.write(images)
        try:
            stores = world.recover()
        except Exception as error:
            self._broken(where, [f"{type(error).__name__}: {error}"])
            return None, []
        picture = world.picture()
        content = picture.content()
        problems = picture.problems(body_of)
        if content not in allowed:
            problems.append("neither what was before nor what was meant")
        if problems:
            self._broken(where, problems)
        return content, stores

    def _take_over(self, where: str) -> None:
        """After a recovery: somebody new drains the queue, and nothing is missing."""
        world = self._world
        expected = {entry.seq for entry in world.picture().unread}
        expected |= {row.seq for row in world.picture().live_rows() if row.state != layout.DEAD}
        self._report.takeovers += 1
        now = world.clock.monotonic()
        try:
            drained = world.drain(2 * VISIBILITY + 1)
        except Exception as error:
            self._broken(f"{where}, taken over", [f"{type(error).__name__}: {error}"])
            return
        finally:
            world.set_clock(now)
        picture = world.picture()
        problems = picture.problems(body_of)
        problems += [
            f"message {seq} was delivered damaged"
            for seq, body in drained.items()
            if body != body_of(seq, len(body))
        ]
        dead = {row.seq for row in picture.live_rows() if row.state == layout.DEAD}
        # With every row dead, what is unread stays so.
        unread = {entry.seq for entry in picture.unread}
        if unread and len(dead) < world.mine.settings.rows:
            problems.append(f"messages {unread} are never delivered")
        if missing := expected - drained.keys() - dead - unread:
            problems.append(f"messages {missing} are missing")
        if problems:
            self._broken(f"{where}, taken over", problems)

    def _broken(self, where: str, problems: list[str]) -> None:
        self._report.broken += 1
        if len(self._report.examples) < _SHOWN:
            path = " → ".join(self._path)
            self._report.examples.append(f"{path}: {where}: {'; '.join(problems)}")
        if self._stops_at_once:
            raise Stop


def explore(
    name: str, kind: str, report: Report, *, depth: int, steps: int, seed: int = 1, **how: Any
) -> None:
    """Breadth first from every start, then at random, on a queue of one kind of SETTINGS."""
    with World(name, SETTINGS[kind]) as world:
        enumeration = Enumeration(world, report, **how)
        try:
            enumeration.breadth_first(depth)
            enumeration.wander(steps, seed)
        except Stop:
            pass


def live_line() -> Callable[[Report], None]:
    """A progress function: one line, written over on a terminal, now and then elsewhere."""
    is_terminal = sys.stdout.isatty()
    pause = 0.5 if is_terminal else 30.0
    last = time.monotonic()

    def show(report: Report) -> None:
        nonlocal last
        if time.monotonic() - last > pause:
            last = time.monotonic()
            print(f"\r  {report}" if is_terminal else f"  {report}", end="", flush=True)
            print(end="" if is_terminal else "\n")

    return show


def main(name: str) -> int:
    """Explore a little, up to the first broken point; 3 if there is one."""
    report = Report()
    for kind in SETTINGS:
        if not report.broken:
            explore(f"{name}-{kind}", kind, report, depth=0, steps=40, stops_at_once=True)
    print(report, *report.examples, sep="\n")
    return 3 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
