"""What Python cannot say: atomic words, memcpy, crc32c, the robust mutex.

The one twin of the project: this file is the interpreted side and the documentation,
prim.pyx the compiled side with the same names. Everything shared between processes is
read and written through `Memory`, eight aligned bytes at a time, so that no compiler and
no interpreter can tear or reorder a store. The interpreted side relies on x86-64, where
plain aligned loads and stores are already acquire and release.
"""

import ctypes
import functools
import mmap
import operator
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import crc32c as _hardware

Buffer = bytes | bytearray | memoryview | mmap.mmap

COMPILED = False

# What Mutex.acquire answers.
ACQUIRED, OWNER_DIED, TIMED_OUT, REENTERED, BROKEN = range(5)

_EBUSY, _EDEADLK, _ETIMEDOUT, _EOWNERDEAD = 16, 35, 110, 130
TID_MASK = 0x3FFFFFFF  # of the futex word of a robust mutex: Linux's own layout
_SLICE_NS = 100_000_000
_CLOCK_MONOTONIC = 1

# PyDLL keeps the GIL over calls that cannot block; CDLL gives it up while waiting.
_quick = ctypes.PyDLL(None)
_waiting = ctypes.CDLL(None)
_trylock = _quick["pthread_mutex_trylock"]
_unlock = _quick["pthread_mutex_unlock"]
_consistent = _quick["pthread_mutex_consistent"]
_clocklock = _waiting["pthread_mutex_clocklock"]

# sizeof(pthread_mutex_t) in glibc on 64-bit Linux; the compiled side asks the compiler and
# the layout check at attach compares the two.
MUTEX_BYTES = 40

monotonic_ns = time.monotonic_ns
realtime_ns = time.time_ns
thread_id = threading.get_native_id


def crc32c(data: Buffer, value: int = 0) -> int:
    """The CRC-32C (Castagnoli) of data, continued from value."""
    return _hardware.crc32c(data, value)


def seed(salt: int, position: int) -> int:
    """Where the checksum of a record starts: its salt and position, folded to 32 bits.

    A checksum that starts elsewhere ends elsewhere, so bytes of another log or of an earlier
    lap never validate. (Two positions fold alike only if they are 2**44 bytes apart or more.)
    """
    mixed = salt ^ position
    return (mixed ^ (mixed >> 32)) & 0xFFFFFFFF


def _getter(words: memoryview) -> Callable[[int], int]:
    """words[index] as one C call: faster than the memoryview's own bound slot."""
    return cast(Callable[[int], int], functools.partial(operator.getitem, words))


def _setter(words: memoryview) -> Callable[[int, int], None]:
    return functools.partial(operator.setitem, words)


class Memory:
    """A buffer shared between processes, reached word by word and checked at its ends.

    `load(index)` and `store(index, value)` move one 64-bit word at byte `8 * index`; here
    they are C callables over a memoryview, so that no Python frame comes between. Setting
    `trace` to a list records every store, for tests that replay a crash after the n-th.
    """

    load: Callable[[int], int]
    store: Callable[[int, int], None]

    def __init__(self, buffer: Buffer) -> None:
        self._bytes = memoryview(buffer).cast("B")
        self.size = len(self._bytes)
        self._words = self._bytes[: self.size // 8 * 8].cast("Q")
        self._trace: list[Any] | None = None
        self._snapshots: list[Snapshot] = []
        self.load = _getter(self._words)
        self.store = _setter(self._words)

    @property
    def trace(self) -> list[Any] | None:
        """Where stores are recorded as (byte offset, value or bytes); None: nowhere."""
        return self._trace

    @trace.setter
    def trace(self, trace: list[Any] | None) -> None:
        self._trace = trace
        self.store = _setter(self._words) if trace is None else self._store_traced
        for snapshot in self._snapshots:
            snapshot.use(trace)

    def _store_traced(self, index: int, value: int) -> None:
        assert self._trace is not None
        self._trace.append((index * 8, value))
        self._words[index] = value

    def disown(self) -> None:
        """Make every further access fail: this object was inherited by a forked child."""
        self.size = 0
        self._bytes = self._bytes[:0]
        for snapshot in self._snapshots:
            snapshot.disown()
        self.load = _getter(self._words[:0])
        self.store = _setter(self._words[:0])

    def copy_in(self, at: int, data: Buffer) -> None:
        """Copy data to byte `at`."""
        source = data if type(data) is bytes else memoryview(data).cast("B")
        if at > self.size or len(source) > self.size - at:
            self._outside(at, len(source))
        if self._trace is not None:
            self._trace.append((at, bytes(source)))
        self._bytes[at : at + len(source)] = source

    def copy_out(self, at: int, count: int) -> bytes:
        """A copy of `count` bytes from byte `at`."""
        if at > self.size or count > self.size - at:
            self._outside(at, count)
        return bytes(self._bytes[at : at + count])

    def copy_to(self, at: int, count: int, target: "Memory") -> None:
        """Copy `count` bytes from byte `at` to the start of another memory."""
        if at > self.size or count > self.size - at:
            self._outside(at, count)
        target._bytes[:count] = self._bytes[at : at + count]

    def keep(self, snapshot: "Snapshot") -> None:
        """Let a snapshot of this memory know when stores are to be traced."""
        self._snapshots.append(snapshot)

    def view(self, at: int, count: int) -> memoryview:
        """`count` bytes from byte `at`, not copied."""
        if at > self.size or count > self.size - at:
            self._outside(at, count)
        return self._bytes[at : at + count]

    def crc(self, at: int, count: int, value: int) -> int:
        """The crc32c of `count` bytes from byte `at`, continued from value."""
        if at > self.size or count > self.size - at:
            self._outside(at, count)
        return _hardware.crc32c(self._bytes[at : at + count], value)

    def spin(self, index: int, seen: int, rounds: int) -> bool:
        """Look at a word until it is no longer `seen`, a bounded number of times."""
        load = self.load
        # An interpreted look costs as much as about thirty compiled ones.
        return any(load(index) != seen for _ in range(rounds // 32))

    def _outside(self, at: int, count: int) -> None:
        raise IndexError(f"{count} bytes at {at} lie outside a memory of {self.size}")


class Snapshot:
    """Words of a Memory and the place where they can be saved; `save()` is one copy."""

    save: Callable[[], None]

    def __init__(self, memory: Memory, source: int, target: int, count: int) -> None:
        for index in (source, target):
            memory.view(index * 8, count * 8)  # raises unless both lie inside
        self._source = memory._words[source : source + count]
        self._target = memory._words[target : target + count]
        self._at = target * 8
        self.use(None)
        memory.keep(self)

    def use(self, trace: list[Any] | None) -> None:
        """Save with or without a trace."""
        save = functools.partial(operator.setitem, self._target, slice(None), self._source)

        def save_traced() -> None:
            assert trace is not None
            trace.append((self._at, self._source.tobytes()))
            save()

        self.save = save if trace is None else save_traced

    def disown(self) -> None:
        """Make every further save fail, as Memory.disown."""
        self._target = self._target[:0]
        self.use(None)


class _Until(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class Mutex:
    """A robust, process-shared, error-checking mutex at a word of a Memory.

    `try_acquire` is one C callable that answers 0, or what `acquire` needs to go on: to wait,
    or to learn why it need not. `acquire` answers ACQUIRED, OWNER_DIED (acquired; the last
    holder was killed), TIMED_OUT, REENTERED (this thread already holds it) or BROKEN.
    `release` ends an ordinary hold. `abandon` is for the `except` of a `try` that began before
    the lock was taken, whatever was raised: one C callable, because a signal handler that
    raises can come between two bytecodes, not inside it. It first makes the mutex consistent,
    because the handler may have struck between the moment the kernel handed over a dead
    holder's lock and the moment this code learnt of it, and unlocking it then would make it
    unrecoverable for ever. Without a hold, it fails harmlessly.
    """

    try_acquire: Callable[[], int]
    release: Callable[[], int]
    abandon: Callable[[], object]

    def __init__(self, memory: Memory, index: int) -> None:
        if index * 8 + MUTEX_BYTES > memory.size:
            raise IndexError(f"no room for a mutex at word {index}")
        self._memory = memory
        self._index = index
        # Exporting the buffer keeps it mapped for as long as the mutex can be reached.
        self._bytes = (ctypes.c_char * MUTEX_BYTES).from_buffer(memory._bytes, index * 8)
        self._at = ctypes.c_void_p(ctypes.addressof(self._bytes))
        self.try_acquire = functools.partial(_trylock, self._at)
        self.release = functools.partial(_unlock, self._at)
        self.abandon = functools.partial(
            max, (functools.partial(_consistent, self._at), self.release), key=operator.call
        )

    def initialise(self) -> int:
        """Make it a mutex; 0 or an errno."""
        kind = ctypes.create_string_buffer(64)
        rc = int(_quick.pthread_mutexattr_init(kind))
        if rc == 0:
            rc = int(
                _quick.pthread_mutexattr_setrobust(kind, 1)
                or _quick.pthread_mutexattr_setpshared(kind, 1)
                or _quick.pthread_mutexattr_settype(kind, 2)
                or _quick.pthread_mutex_init(self._at, kind)
            )
            _quick.pthread_mutexattr_destroy(kind)
        return rc

    def acquire(self, refusal: int, timeout_ns: int) -> int:
        """Go on after `try_acquire` answered `refusal`, waiting at most timeout_ns."""
        rc = refusal
        deadline = monotonic_ns() + timeout_ns
        while rc in (_EBUSY, _ETIMEDOUT):
            now = monotonic_ns()
            if now >= deadline:
                return TIMED_OUT
            seconds, nanoseconds = divmod(min(deadline, now + _SLICE_NS), 1_000_000_000)
            rc = _clocklock(self._at, _CLOCK_MONOTONIC, ctypes.byref(_Until(seconds, nanoseconds)))
        if rc == 0:
            return ACQUIRED
        if rc == _EOWNERDEAD:
            _consistent(self._at)
            return OWNER_DIED
        return REENTERED if rc == _EDEADLK else BROKEN

    def is_mine(self) -> bool:
        """Whether this thread holds it: asked before the `try`, never inside."""
        holder = self._memory.load(self._index) & TID_MASK
        return holder != 0 and holder == thread_id()

    def holder(self) -> int:
        """The thread id of the holder; 0 when free."""
        return self._memory.load(self._index) & TID_MASK
