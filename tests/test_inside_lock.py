"""What can happen to a process inside the lock: a fork, a call back, an error, its death.

Code is run there through `Memory.trace`, whose `append` is called at each store, on the
compiled build as well, where otherwise no Python can run inside.
"""

import ctypes
import errno
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import shmq
from shmq import layout

from .children import Children, Flag, status_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

When = Callable[[int, Any], bool]
Work = Callable[[shmq.Queue], None]


@pytest.fixture
def queue(name: str) -> Iterator[shmq.Queue]:
    queue = shmq.open(name, durable=False, ring_bytes=1 << 16, max_message=8192, rows=64)
    yield queue
    queue._memory.trace = queue._group_memory.trace = None
    queue.close()
    shmq.delete(name, durable=False, force=True)


@pytest.fixture
def children() -> Iterator[Children]:
    with Children() as children:
        yield children


class Hook(list[Any]):
    """Runs `action` once, at the first store that `when` is true of."""

    def __init__(self, when: When, action: Callable[[], object]) -> None:
        self._when = when
        self._action: Callable[[], object] | None = action

    def append(self, store: tuple[int, Any]) -> None:
        action = self._action
        if action is not None and self._when(*store):
            self._action = None
            action()


def is_body(at: int, value: Any) -> bool:
    """The store of a record's body: inside the lock, before any control word changes."""
    return isinstance(value, bytes)


def is_tail(at: int, value: Any) -> bool:
    """The first change of a put: the undo log is armed."""
    return at == 8 * layout.word(layout.QUEUE, "tail")


def is_commit(at: int, value: Any) -> bool:
    """The last change of a put, which makes it count."""
    return at == 8 * layout.word(layout.QUEUE, "published")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def bodies(queue: shmq.Queue) -> list[bytes]:
    return sorted(message.body for message in queue.get_many(10, timeout=1))


def put_and_fork_inside(
    queue: shmq.Queue,
    in_parent: Callable[[int], object],
    in_child: Callable[[Exception | None], int],
) -> int:
    """Fork in the middle of a put; the child ends with the status that `in_child` answers."""
    pids: list[int] = []

    def fork() -> None:
        pids.append(os.fork())
        if pids[0]:
            in_parent(pids[0])

    queue._memory.trace = Hook(is_body, fork)
    outcome: Exception | None = None
    try:
        queue.put(b"the parent's")
    except Exception as error:
        outcome = error
    if pids == [0]:
        status = 1
        try:
            status = in_child(outcome)
        finally:
            os._exit(status)
    if outcome is not None:
        raise outcome
    return pids[0]


def test_a_child_forked_inside_neither_stores_nor_unlocks(queue: shmq.Queue) -> None:
    def in_parent(pid: int) -> None:
        ring_at = queue._segments.queue_plan.ring_at
        before = bytes(queue._segments.queue_map[:ring_at]), bytes(queue._segments.group_map)
        assert status_of(pid) == 7, "the child's call must fail with an exception"
        # Beyond ring_at the child may repeat the store it was forked in, of the same bytes.
        after = bytes(queue._segments.queue_map[:ring_at]), bytes(queue._segments.group_map)
        assert after == before
        assert queue.guard.mutex.holder() == threading.get_native_id()

    put_and_fork_inside(queue, in_parent, lambda error: 7 if error is not None else 8)
    assert bodies(queue) == [b"the parent's"]
    assert queue.stats().puts == 1


def test_a_child_forked_inside_can_use_the_queue_afterwards(queue: shmq.Queue) -> None:
    def in_child(error: Exception | None) -> int:
        queue.put(b"the child's")
        return 0

    assert status_of(put_and_fork_inside(queue, lambda pid: None, in_child)) == 0
    assert bodies(queue) == [b"the child's", b"the parent's"]


def test_a_child_that_dies_does_not_free_the_lock_its_parent_holds(
    queue: shmq.Queue, children: Children
) -> None:
    queue.guard.enter()
    try:
        assert status_of(children.start(die)) == -signal.SIGKILL
        assert queue.guard.mutex.holder() == threading.get_native_id()
    finally:
        queue.guard.leave()
    assert queue.guard.deaths == 0


@pytest.mark.parametrize("when", [is_body, is_tail])
def test_a_signal_handler_that_calls_back_is_refused(queue: shmq.Queue, when: When) -> None:
    holders = []

    def handler(number: int, frame: object) -> None:
        with pytest.raises(shmq.ReentrantCall):
            queue.put(b"from the handler")
        holders.append(queue.guard.mutex.holder())

    previous = signal.signal(signal.SIGUSR1, handler)
    try:
        queue._memory.trace = Hook(when, lambda: signal.raise_signal(signal.SIGUSR1))
        queue.put(b"interrupted")
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert holders == [threading.get_native_id()], "the outer hold was released"
    assert bodies(queue) == [b"interrupted"]


def test_a_destructor_that_calls_back_is_refused(queue: shmq.Queue) -> None:
    holders = []

    class Careless:
        def __init__(self) -> None:
            self.itself = self  # only the collector finds it

        def __del__(self) -> None:
            try:
                queue.put(b"from the destructor")
            except shmq.ReentrantCall:
                holders.append(queue.guard.mutex.holder())

    Careless()
    queue._memory.trace = Hook(is_tail, gc.collect)
    queue.put(b"collected inside")
    assert holders == [threading.get_native_id()], "the outer hold was released"
    assert bodies(queue) == [b"collected inside"]


@pytest.mark.parametrize("which", ["queue", "group"])
def test_a_call_under_a_held_guard_is_refused_and_keeps_the_hold(
    queue: shmq.Queue, which: str
) -> None:
    guard = {"queue": queue.guard, "group": queue._group.guard}[which]
    calls: dict[str, Callable[[], object]] = {
        "queue": partial(queue.put, b"no"),
        "group": partial(queue.get, timeout=0),
    }
    guard.enter()
    try:
        with pytest.raises(shmq.ReentrantCall):
            calls[which]()
        assert guard.mutex.holder() == threading.get_native_id()
    finally:
        guard.leave()
    assert guard.mutex.holder() == 0
    assert queue.stats().puts == 0


def test_an_error_inside_is_rolled_back_by_the_next_call(queue: shmq.Queue) -> None:
    def fail() -> None:
        raise RuntimeError("inside")

    queue._memory.trace = Hook(is_commit, fail)
    with pytest.raises(RuntimeError, match="inside"):
        queue.put(b"never")
    assert queue.guard.mutex.holder() == 0
    queue.put(b"next")
    assert bodies(queue) == [b"next"]
    assert queue.stats().recoveries == 1


# Deaths in a row. Children attach before they are told to go, because attaching takes the
# lock and would recover for them.


def attach_then(queue: shmq.Queue, go: Flag, is_attached: Flag, work: Work) -> None:
    queue.stats()
    is_attached.set()
    go.wait()
    work(queue)


def put_and_die(queue: shmq.Queue) -> None:
    """Die with every word of a put changed but the one that commits it."""
    queue._memory.trace = Hook(is_commit, die)
    queue.put(b"never put")


def take_over_and_die(queue: shmq.Queue) -> None:
    """Die between the kernel's EOWNERDEAD and anything that our code does about it."""
    at = 8 * layout.word(layout.QUEUE, "mutex")
    mutex = (ctypes.c_char * 40).from_buffer(queue._segments.queue_map, at)
    assert ctypes.PyDLL(None)["pthread_mutex_trylock"](mutex) == errno.EOWNERDEAD
    die()


def recover_and_die(queue: shmq.Queue) -> None:
    """Die at the first store of the recovery: the lock is consistent, the log still armed."""
    queue._memory.trace = Hook(lambda at, value: True, die)
    queue.put(b"never put either")


@pytest.mark.parametrize("rounds", [1, 3])
def test_deaths_between_owner_dead_and_recovery_lose_nothing(
    queue: shmq.Queue, children: Children, rounds: int
) -> None:
    queue.put(b"before")
    for _ in range(rounds):
        waiting = []
        for work in (put_and_die, take_over_and_die, recover_and_die, take_over_and_die):
            go, is_attached = Flag(), Flag()
            pid = children.start(partial(attach_then, queue, go, is_attached, work))
            is_attached.wait()
            waiting.append((go, pid))
        for go, pid in waiting:
            go.set()
            assert status_of(pid) == -signal.SIGKILL
        queue.put(b"after")
    assert queue.stats().recoveries == rounds
    assert queue.guard.deaths == rounds
    assert bodies(queue) == [b"after"] * rounds + [b"before"]
    assert queue.stats().puts == 1 + rounds
