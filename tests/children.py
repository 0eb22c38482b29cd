"""Forked processes for tests: they never come back into the test runner, and none is left."""

import os
import signal
import traceback
from collections.abc import Callable
from types import TracebackType


class Children:
    """The children of one test; as a context manager it kills and reaps what is left."""

    def __init__(self) -> None:
        self._pids: list[int] = []

    def start(self, work: Callable[[], object]) -> int:
        """Run `work` in a child, which then exits: with 0, or with 1 if it raised."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        self._pids.append(pid)
        return pid

    def __enter__(self) -> "Children":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass  # reaped by the test


def status_of(pid: int) -> int:
    """Wait for a child; its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill(pid: int) -> None:
    """Kill a child and reap it."""
    os.kill(pid, signal.SIGKILL)
    assert status_of(pid) == -signal.SIGKILL


class Flag:
    """Tells one process that another has come so far."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def set(self) -> None:
        """Let one `wait` return, now or later."""
        os.write(self._writer, b"!")

    def wait(self) -> None:
        """Block until `set`; the test's deadline bounds it."""
        assert os.read(self._reader, 1) == b"!"

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
