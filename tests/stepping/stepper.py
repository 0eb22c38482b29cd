"""Twins of this process, stepped into an operation one instruction at a time and killed there.

A twin is forked without Python noticing, so it goes on with this process' handles, and every
twin of one moment executes the same instructions. One is stepped through the operation to
write down where it comes by; each of the others runs at full speed to a breakpoint shortly
before its kill point, and is stepped from there.
"""

import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from persist.format import offset
from shmq.layout import GROUP, QUEUE

Operation = Callable[[], object]

_REACHED, _COMMITTED, _ENDED = range(3)
_TRACE_MAX = 1_000_000
_TIMES, _SELDOM = 64, 512  # how often an instruction is a kill point before it is one seldom
_BORROWED = re.compile(r"\[vdso\]|.*/(libc|libpthread|ld)[-.][^/]*")


class Point(NamedTuple):
    """An instruction to kill at: a breakpoint, the how-manieth time it is met, steps from it."""

    breakpoint: int
    times: int
    steps: int
    address: int  # of the instruction itself
    number: int  # of kill points before it


class _Area(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "is_borrowed")]


class _Walk(ctypes.Structure):
    _fields_ = [
        ("areas", ctypes.c_void_p),
        ("area_count", ctypes.c_uint64),
        ("mutexes", ctypes.c_void_p * 2),
        ("undo_counts", ctypes.c_void_p * 2),
        ("trace", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("limit", "count", "address", "is_inside", "armed")),
    ]


class Stepper:
    """Steps twins through operations on the queue whose two segments are mapped in `maps`."""

    def __init__(self, library: Path, maps: tuple[mmap, mmap]) -> None:
        # PyDLL: the twin must come to life holding the GIL.
        self._library = ctypes.PyDLL(str(library))
        self._library.run_to.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64)
        areas = _areas()
        self._areas = (_Area * len(areas))(*(_Area(*area) for area in areas))
        self._ours = [(start, end) for start, end, is_borrowed in areas if not is_borrowed]
        self._mutexes = _addresses(maps, "mutex")
        self._undo_counts = _addresses(maps, "undo_count")

    def begin(self, operation: Operation) -> int:
        """A stopped twin that will carry out the operation and exit; its pid."""
        child = int(self._library.begin())
        if child == 0:
            code = 1
            try:
                _forget_the_past()
                operation()
                code = 0
            finally:
                os._exit(code)
        if child < 0:
            raise OSError(-child, f"no traced child: {os.strerror(-child)}")
        return child

    def trace(
        self, operation: Operation, at_commit: Callable[[], None]
    ) -> tuple[list[Point], list[int]]:
        """Let a twin do all of it: every kill point, and the numbers of those that commit.

        `at_commit` is called after each instruction that commits a transaction.
        """
        addresses = np.zeros(_TRACE_MAX, np.uint64)
        walk = self._walk(addresses.ctypes.data, _TRACE_MAX)
        commits = []
        child = self.begin(operation)
        while (outcome := self._library.step(ctypes.byref(walk), child)) == _COMMITTED:
            commits.append(walk.count - 1)
            at_commit()
        if outcome != _ENDED:
            kill(child)
            raise AssertionError(f"the operation failed or is endless: {walk.count} instructions")
        return self._points(addresses[: walk.count]), commits

    def kill_at(self, operation: Operation, point: Point) -> tuple[int, bool]:
        """Kill a twin before it executes that instruction; its pid, and whether it got there."""
        child = self.begin(operation)
        walk = self._walk(None, point.steps)
        outcome = self._library.run_to(child, point.breakpoint, point.times)
        if outcome == _REACHED:
            outcome = self._library.step(ctypes.byref(walk), child)
        if outcome != _ENDED:
            kill(child)
        return child, outcome == _REACHED and walk.address == point.address

    def _walk(self, trace: int | None, limit: int) -> Any:
        return _Walk(
            ctypes.addressof(self._areas), len(self._areas), self._mutexes, self._undo_counts,
            trace, limit,
        )  # fmt: skip

    def _points(self, addresses: Any) -> list[Point]:
        """How to get to each instruction with few stops: meeting a breakpoint costs a step."""
        is_ours = np.zeros(len(addresses), bool)
        for start, end in self._ours:
            is_ours |= (addresses >= start) & (addresses < end)
        end = int(np.flatnonzero(is_ours)[-1]) + 1
        times: Counter[int] = Counter()
        best = met = start = 0
        points = []
        for n, address in enumerate(addresses[:end].tolist()):
            times[address] += 1
            if is_ours[n] and (n == 0 or times[address] <= met + n - start):
                best, met, start = address, times[address], n
            if times[address] <= _TIMES or times[address] % _SELDOM == 0:
                points.append(Point(best, met, n - start, address, n))
        return points


def _forget_the_past() -> None:
    """What would lead twins different ways: a collection due soon, whether anything was raised.

    (A thread that never handled an exception has none to save; one that did has None.)
    """
    gc.disable()
    try:
        raise ValueError
    except ValueError:
        pass


def compile_library(directory: Path) -> Path:
    """Build stepper.c with the system's compiler."""
    library = directory / "stepper.so"
    source = Path(__file__).with_name("stepper.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def probe(library: Path) -> None:
    """OSError if this process may not trace its children."""
    child = ctypes.PyDLL(str(library)).begin()
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(-child, os.strerror(-child))
    kill(child)


def kill(child: int) -> None:
    """Kill a twin and reap it."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _areas() -> list[tuple[int, int, bool]]:
    """Where the compiled modules lie, and the C library that they call."""
    files = {
        getattr(module, "__file__", None)
        for name, module in sys.modules.items()
        if name.split(".")[0] in ("persist", "shmq")
    }
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, mode, _, _, _, *path = line.split(maxsplit=5)
        if "x" in mode and path:
            is_borrowed = _BORROWED.fullmatch(path[0]) is not None
            if is_borrowed or path[0] in files:
                start, end = (int(part, 16) for part in where.split("-"))
                found.append((start, end, is_borrowed))
    return found


def _addresses(maps: tuple[mmap, mmap], field: str) -> Any:
    """Where this process sees a word of each segment."""
    pairs = zip(maps, (QUEUE, GROUP), strict=True)
    return (ctypes.c_void_p * 2)(
        *(
            ctypes.addressof(ctypes.c_char.from_buffer(segment, offset(dtype, field)))
            for segment, dtype in pairs
        )
    )
