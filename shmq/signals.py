"""Wake-ups between processes: named semaphores, never the truth.

A wait is always timed and whoever wakes re-reads the shared words, so a lost post costs a
short wait and a surplus one a look. posix_ipc times against the wall clock; waits are
therefore kept short, and a clock that jumps cannot stretch one beyond WAIT_MAX.
"""

import os
import stat

import posix_ipc

from shmq.errors import QueueExists
from shmq.names import SHM_DIRECTORY

WAIT_MAX = 0.25  # s: the longest that a lost wake-up can go unnoticed


class Bell:
    """One semaphore: `ring` wakes a sleeper, `wait` sleeps until rung or timed out."""

    def __init__(self, name: str) -> None:
        file = f"{SHM_DIRECTORY}/sem.{name[1:]}"
        found = os.stat(file, follow_symlinks=False)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            raise QueueExists(f"{file} belongs to somebody else; it is not used")
        self._semaphore = posix_ipc.Semaphore(name)

    def ring(self) -> None:
        """Wake one sleeper, now or when it next goes to sleep."""
        self._semaphore.release()

    def wait(self, seconds: float) -> None:
        """Sleep until rung, interrupted, or the time is up; the caller looks for itself."""
        try:
            self._semaphore.acquire(max(0.0, min(seconds, WAIT_MAX)))
        except (posix_ipc.BusyError, posix_ipc.SignalError):
            pass


def create(name: str) -> None:
    """Make the semaphore; the caller holds the lock of the queue's creation."""
    unlink(name)
    posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0).close()


def unlink(name: str) -> None:
    """Remove the name, if it is there."""
    try:
        posix_ipc.unlink_semaphore(name)
    except posix_ipc.ExistentialError:
        pass
