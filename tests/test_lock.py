"""The guard of a segment: exclusion, its holders' deaths, and what it says when it cannot."""

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

import shmq
from shmq import layout, lock, participants
from shmq.lock import Guard

from .children import Children, Flag, kill, status_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

WORKERS = 4
# Words of the test's own, in a ring that stays empty; counted from its end.
COUNTER, INSIDE, OWN = -1, -2, -2 - WORKERS


@pytest.fixture
def queue(name: str) -> Iterator[shmq.Queue]:
    queue = shmq.open(name, durable=False, ring_bytes=1 << 16, max_message=8192)
    yield queue
    queue.close()
    shmq.delete(name, durable=False, force=True)


@pytest.fixture
def children() -> Iterator[Children]:
    with Children() as children:
        yield children


def guard_in_child(queue: shmq.Queue) -> Guard:
    """The guard of the handle that a forked child gets with its first call."""
    queue.stats()
    return queue.guard


def hold(queue: shmq.Queue, is_held: Flag, until: Flag) -> None:
    guard = guard_in_child(queue)
    guard.enter()
    is_held.set()
    until.wait()
    guard.leave()


def wait(guard: Guard) -> None:
    guard.enter()
    guard.leave()


def wait_in_child(queue: shmq.Queue) -> None:
    wait(guard_in_child(queue))


def count(queue: shmq.Queue, worker: int) -> None:
    """Increment two words, not atomically; whoever is found inside must be dead."""
    guard = guard_in_child(queue)
    words = memoryview(queue._segments.queue_map).cast("Q")
    while True:
        guard.enter()
        if words[INSIDE]:
            # The kernel frees a dying process' locks a moment before it is seen to be dead.
            deadline = time.monotonic() + 2
            while participants.liveness.started(words[INSIDE]):
                assert time.monotonic() < deadline, "two are inside"
        words[INSIDE] = os.getpid()
        value = words[COUNTER]
        for _ in range(5):
            pass
        words[COUNTER] = value + 1
        words[OWN + worker] += 1
        words[INSIDE] = 0
        guard.leave()


def test_one_is_inside_at_a_time_whoever_is_killed(queue: shmq.Queue, children: Children) -> None:
    rng = random.Random(1)
    words = memoryview(queue._segments.queue_map).cast("Q")
    kills = 200
    pids = [children.start(partial(count, queue, n)) for n in range(WORKERS)]
    for _ in range(kills):
        time.sleep(rng.random() * 0.01)
        worker = rng.randrange(WORKERS)
        kill(pids[worker])
        pids[worker] = children.start(partial(count, queue, worker))
    before = words[COUNTER]
    deadline = time.monotonic() + 5
    while words[COUNTER] == before:
        assert time.monotonic() < deadline, "nobody gets in any more"
        time.sleep(0.001)
    for pid in pids:
        kill(pid)
    wait(queue.guard)
    own = sum(words[OWN + n] for n in range(WORKERS))
    print(f"{own} sections, {words[COUNTER] - own} deaths between their two words")
    # Who is killed between the two words has counted once more in the first.
    assert own <= words[COUNTER] <= own + kills + WORKERS
    assert own > kills
    words.release()


def test_the_next_one_gets_in_when_the_holder_is_killed(
    queue: shmq.Queue, children: Children
) -> None:
    is_held = Flag()
    holder = children.start(partial(hold, queue, is_held, Flag()))
    is_held.wait()
    killer = threading.Timer(0.2, partial(kill, holder))
    killer.start()
    guard = queue.guard
    began = time.monotonic()
    guard.enter()
    took = time.monotonic() - began
    guard.leave()
    killer.join()
    assert 0.1 < took < 2
    assert guard.deaths == 1


def test_a_waiter_that_is_killed_leaves_the_holder_alone(
    queue: shmq.Queue, children: Children
) -> None:
    guard = queue.guard
    guard.enter()
    waiter = children.start(partial(wait_in_child, queue))
    time.sleep(0.2)
    kill(waiter)
    assert guard.mutex.holder() == threading.get_native_id()
    guard.leave()
    assert status_of(children.start(partial(wait_in_child, queue))) == 0


def test_a_signal_handler_that_raises_ends_the_wait_for_the_lock(
    queue: shmq.Queue, children: Children
) -> None:
    is_held, until = Flag(), Flag()
    holder = children.start(partial(hold, queue, is_held, until))
    is_held.wait()

    def handler(number: int, frame: object) -> None:
        raise InterruptedError

    previous = signal.signal(signal.SIGALRM, handler)
    guard = queue.guard
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError):
            guard.enter()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert time.monotonic() - began < 5
    assert guard.mutex.holder() == holder
    until.set()
    assert status_of(holder) == 0
    guard.enter()
    guard.leave()


def test_a_stopped_holder_is_named_and_not_robbed(queue: shmq.Queue, children: Children) -> None:
    is_held, until = Flag(), Flag()
    holder = children.start(partial(hold, queue, is_held, until))
    is_held.wait()
    os.kill(holder, signal.SIGSTOP)
    guard = queue.guard
    began = time.monotonic()
    with pytest.raises(shmq.QueueBusy, match=rf"pid {holder} \(.*state T\).*SIGCONT"):
        guard.enter()
    assert time.monotonic() - began >= 0.9 * lock.LOCK_TIMEOUT
    assert guard.mutex.holder() == holder
    os.kill(holder, signal.SIGCONT)
    until.set()
    assert status_of(holder) == 0
    guard.enter()
    guard.leave()


@pytest.mark.parametrize("seed", range(4))
def test_a_lock_that_was_overwritten_is_named(name: str, children: Children, seed: int) -> None:
    garbage = b"\xff" * 40 if seed == 0 else random.Random(seed).randbytes(40)

    def work() -> None:
        queue = shmq.open(name, durable=False, ring_bytes=1 << 16, max_message=8192)
        at = 8 * layout.word(layout.QUEUE, "mutex")
        queue._segments.queue_map[at : at + len(garbage)] = garbage
        with pytest.raises(shmq.ShmqError):
            queue.put(b"no")

    # In a child, because the C library may not survive it.
    assert status_of(children.start(work)) == 0
    shmq.delete(name, durable=False, force=True)


def test_memory_stays_mapped_while_a_thread_waits(name: str, children: Children) -> None:
    def work() -> None:
        queue = shmq.open(name, durable=False, ring_bytes=1 << 16, max_message=8192)
        is_held, until = Flag(), Flag()
        holder = Children().start(partial(hold, queue, is_held, until))
        is_held.wait()
        waiter = threading.Thread(target=wait, args=(queue.guard,))
        waiter.start()
        time.sleep(0.2)
        del queue
        gc.collect()
        until.set()
        waiter.join(20)
        assert not waiter.is_alive()
        assert status_of(holder) == 0

    assert status_of(children.start(work)) == 0, "it crashed, or never got the lock"
    shmq.delete(name, durable=False, force=True)
