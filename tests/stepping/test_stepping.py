"""The compiled modules as they are shipped, killed at every instruction: 0 broken.

Only the compiled build has instructions of its own. Passed over without a kill are those of
the interpreter and of numpy while no lock is held: they do not touch shared memory.
"""

import os
import platform
from pathlib import Path
from typing import Any

import pytest

from persist import prim
from persist.format import offset
from shmq import layout
from shmq.clock import Clock
from shmq.queue import Queue

from .operations import CASES, Case
from .rig import Rig, kill_everywhere, rigged
from .stepper import Operation, compile_library, probe

# A transaction to die in, and whether recovery is to find it committed.
DEATHS = [
    ("put", False),
    ("put", True),
    ("put many", False),
    ("reserve", False),
    ("reserve, published late", False),
    ("get many new", False),
    ("get returned", False),
    ("ack many", False),
    ("nack now", False),
]
EVERY = 7  # instructions, in the quick tests


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stepper.c, compiled; skips where nothing can be stepped, except in CI."""
    if not prim.COMPILED:
        pytest.skip("the interpreted build has no instructions of its own")
    if platform.machine() != "x86_64":
        pytest.skip("stepper.c knows x86-64 only")
    try:
        library = compile_library(tmp_path_factory.mktemp("stepper"))
        probe(library)
    except OSError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no compiler, or no permission to trace: {error}")
    return library


@pytest.mark.parametrize("which", ["put", "get new", "get returned", "ack"])
def test_a_kill_in_an_operation_breaks_nothing(which: str, name: str, library: Path) -> None:
    with rigged(name, library, CASES[which]) as rig:
        report = kill_everywhere(rig, CASES[which].transactions, EVERY)
    assert report.broken == []


@pytest.mark.long
@pytest.mark.parametrize("which", CASES)
def test_a_kill_at_any_instruction_breaks_nothing(which: str, name: str, library: Path) -> None:
    with rigged(name, library, CASES[which]) as rig:
        report = kill_everywhere(rig, CASES[which].transactions, CASES[which].every)
    print(f"\n{which:32} {report}")
    assert report.broken == []


@pytest.mark.long
@pytest.mark.parametrize(("which", "is_committed"), DEATHS)
def test_a_kill_at_any_instruction_of_a_recovery_breaks_nothing(
    which: str, is_committed: bool, name: str, library: Path
) -> None:
    with rigged(name, library, CASES[which]) as rig:
        die_in_transaction(rig, is_committed=is_committed)
        report = kill_everywhere(rig, 0)
    print(f"\n{f'recovery of {which}':32} {report}")
    assert report.broken == []


def test_stores_past_the_undo_log_are_noticed(name: str, library: Path) -> None:
    with rigged(name, library, Case(two_stores_without_a_log, 1)) as rig:
        report = kill_everywhere(rig, 1, 50 * EVERY)  # half of the interpreter is in the lock
    assert any("a state between" in problem for problem in report.broken)


def two_stores_without_a_log(queue: Queue, clock: Clock) -> Operation:
    """Move the tail twice in one section: each time a state in order, but not to be seen."""
    at = offset(layout.QUEUE, "tail")
    tail = int.from_bytes(queue._memory.copy_out(at, 8), "little")

    def operation() -> None:
        queue.guard.enter()
        queue._memory.copy_in(at, (tail + 8).to_bytes(8, "little"))
        queue._memory.copy_in(at, (tail + 16).to_bytes(8, "little"))
        queue.guard.leave()

    return operation


def die_in_transaction(rig: Rig, *, is_committed: bool) -> None:
    """Let somebody die late in the operation's first transaction; recovery is then killed."""
    before = rig.content()
    after: list[tuple[Any, ...]] = []
    points, commits = rig.stepper.trace(rig.operation, lambda: after.append(rig.content()))
    for point in reversed([point for point in points if point.number <= commits[0]]):
        rig.restore()
        rig.stepper.kill_at(rig.operation, point)
        assert rig.is_armed()
        assert rig.recover() == []
        if rig.content() == (after[0] if is_committed else before):
            break
    rig.victim = rig.operation, point
    rig.operation = rig.recover
