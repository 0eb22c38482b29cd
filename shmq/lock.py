# cython: annotation_typing=False
"""The guard of one segment: a robust mutex, and the repair of what its dead holders left.

How a section is written, everywhere:

    guard.check()            # ReentrantCall, before anything is held; hot code looks at the
                             # lock word itself first, and asks only when somebody holds it
    try:
        guard.enter()
        ...                  # no allocation, no Python-level callback, no user code
        mutex.release()
    except BaseException:
        mutex.abandon()      # one C callable, harmless if not held: see persist.prim.Mutex
        raise

`enter` returns with the lock held and the state whole. Whether somebody died is told by the
undo log, not by the lock: a log found armed is rolled back here, whether its writer was
killed, raised, or was interrupted by a signal handler. `rebuild` is the second line, for a
log that makes no sense.

A signal handler may raise anywhere between `try` and the end of `release`; whatever it
interrupts, `abandon` is called before any other bytecode that could be interrupted.

What a death leaves: while waiting, nothing. Holding, before `enter` is through: an armed
log, which the next holder rolls back from the start. Between `enter` and `release`: see
undo.py. A live holder is never robbed: after LOCK_TIMEOUT the error names it.
"""

from collections.abc import Callable

from persist.prim import (
    ACQUIRED,
    BROKEN,
    OWNER_DIED,
    REENTERED,
    TID_MASK,
    TIMED_OUT,
    Memory,
    Mutex,
)
from shmq.errors import LayoutMismatch, QueueBusy, ReentrantCall
from shmq.undo import DamagedLog, Undo

LOCK_TIMEOUT = 10.0  # s; far beyond any section, short of a user's patience

_TIMEOUT_NS = int(LOCK_TIMEOUT * 1e9)
_TID_MASK = TID_MASK
_ACQUIRED, _OWNER_DIED = ACQUIRED, OWNER_DIED


class Guard:
    """The lock of a segment; `deaths` counts the holders found dead by this process."""

    def __init__(self, memory: Memory, mutex_at: int, undo_at: int, line_at: int) -> None:
        self.memory = memory
        self.mutex = Mutex(memory, mutex_at)
        self.undo = Undo(memory, undo_at, line_at)
        self._mutex_at = mutex_at
        self._undo_at = undo_at
        self.rebuild: Callable[[], None] | None = None
        self.deaths = 0

    def check(self) -> None:
        """ReentrantCall if this very thread is inside the section already."""
        if self.memory.load(self._mutex_at) & _TID_MASK and self.mutex.is_mine():
            raise ReentrantCall(
                "called from a signal handler or destructor that interrupted another call on "
                "the same queue; set a flag there and call from ordinary code"
            )

    def enter(self) -> None:
        """Take the lock and leave the state whole; the caller releases it."""
        refusal = self.mutex.try_acquire()
        if refusal:
            self._explain(self.mutex.acquire(refusal, _TIMEOUT_NS))
        if self.memory.load(self._undo_at):
            self._recover()

    def leave(self) -> None:
        """Release from code that nothing can interrupt (tests and tools)."""
        self.mutex.release()

    def _recover(self) -> None:
        try:
            self.undo.roll_back()
        except DamagedLog:
            self.mend()

    def mend(self) -> None:
        """Rebuild everything derived; the lock is held. Dying in here means starting over."""
        assert self.rebuild is not None
        self.undo.condemn()
        self.rebuild()
        self.undo.forget()

    def _explain(self, answer: int) -> None:
        if answer == _ACQUIRED:
            return
        if answer == _OWNER_DIED:
            self.deaths += 1
            return
        if answer == REENTERED:
            raise ReentrantCall("this thread already holds the queue's lock")
        if answer == TIMED_OUT:
            raise QueueBusy(describe(self.mutex.holder()))
        assert answer == BROKEN
        raise LayoutMismatch(
            "the queue's lock is not a mutex any more; its memory was overwritten. "
            "Delete the queue with shmq.delete(..., force=True)"
        )


def describe(holder: int) -> str:
    """Who holds a lock, for an error message: pid, name and state."""
    try:
        with open(f"/proc/{holder}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
        name = text[text.index("(") + 1 : text.rindex(")")]
        state = text[text.rindex(")") + 2]
        who = f"pid {holder} ({name}, state {state})"
    except (OSError, ValueError):
        who = f"thread {holder}"
    hint = "; it is stopped: continue it with SIGCONT" if ", state T" in who else ""
    return f"the queue's lock has been held for {LOCK_TIMEOUT:.0f} s by {who}{hint}"
