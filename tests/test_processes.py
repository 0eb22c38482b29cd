"""A queue in the lives of processes: forked, spawned, interrupted, killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import shmq
from shmq import layout, participants

from .children import Children, Flag, kill, status_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def queue(name: str) -> Iterator[shmq.Queue]:
    queue = shmq.open(
        name, durable=False, ring_bytes=1 << 16, max_message=8192, rows=64, max_deliveries=3
    )
    yield queue
    queue.close()
    shmq.delete(name, durable=False, force=True)


@pytest.fixture
def children() -> Iterator[Children]:
    with Children() as children:
        yield children


# Other processes and threads

WORK = """
import multiprocessing, sys
import shmq

def echo(queue):
    for _ in range(20):
        with queue.get(timeout=10) as message:
            queue.put(message.body.upper())

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    queue = shmq.open(sys.argv[1], durable=False)
    for n in range(20):
        queue.put(b"hello %d" % n)
    process = context.Process(target=echo, args=(queue,))
    process.start()
    process.join(30)
    assert process.exitcode == 0, process.exitcode
    assert sorted(queue.get(timeout=5).body for _ in range(20)) == sorted(
        b"HELLO %d" % n for n in range(20)
    )
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_takes_a_queue_along(
    queue: shmq.Queue, method: str, tmp_path: Path
) -> None:
    script = tmp_path / "work.py"
    script.write_text(WORK)
    subprocess.run([sys.executable, str(script), queue.name, method], check=True, timeout=60)


def test_a_forked_child_uses_the_inherited_handle(queue: shmq.Queue, children: Children) -> None:
    queue.put(b"to the child")

    def work() -> None:
        message = queue.get(timeout=5)
        queue.put(message.body + b" and back")
        message.ack()

    assert status_of(children.start(work)) == 0
    with queue.get(timeout=5) as message:
        assert message.body == b"to the child and back"
    assert queue.stats().acks == 2


def test_a_child_acks_what_its_parent_leased(queue: shmq.Queue, children: Children) -> None:
    queue.put(b"shared")
    message = queue.get()
    assert status_of(children.start(message.ack)) == 0
    with pytest.raises(shmq.StaleReceipt):
        message.ack()
    assert queue.stats().acks == 1


def test_threads_share_a_handle(queue: shmq.Queue) -> None:
    got: list[bytes] = []

    def produce(who: int) -> None:
        for n in range(500):
            queue.put(b"%d %d" % (who, n))

    def consume() -> None:
        for _ in range(500):
            with queue.get(timeout=10) as message:
                got.append(message.body)

    threads = [threading.Thread(target=produce, args=(who,)) for who in range(2)]
    threads += [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(got) == sorted(b"%d %d" % (who, n) for who in range(2) for n in range(500))


# Deaths


def take_and_sleep(queue: shmq.Queue, has_taken: Flag) -> None:
    queue.get(timeout=10)
    has_taken.set()
    time.sleep(600)


@pytest.mark.parametrize("is_reaped", [True, False], ids=["reaped", "zombie"])
def test_the_leases_of_the_dead_come_back_to_a_waiting_consumer(
    queue: shmq.Queue, children: Children, is_reaped: bool
) -> None:
    queue.put(b"taken twice")
    has_taken = Flag()
    pid = children.start(partial(take_and_sleep, queue, has_taken))
    has_taken.wait()
    killed_at = []

    def strike() -> None:
        killed_at.append(time.monotonic())
        if is_reaped:
            kill(pid)
        else:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Timer(0.2, strike)
    killer.start()
    message = queue.get(timeout=10)
    took = time.monotonic() - killed_at[0]
    killer.join()
    print(f"back after {1000 * took:.0f} ms")
    assert took < 2
    assert (message.body, message.deliveries) == (b"taken twice", 2)
    assert queue.stats().died == 1


def test_a_process_with_the_pid_of_a_dead_one_does_not_keep_its_leases(
    queue: shmq.Queue, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(b"of a former process")
    has_taken = Flag()
    pid = children.start(partial(take_and_sleep, queue, has_taken))
    has_taken.wait()
    started = participants.liveness.started
    monkeypatch.setattr(
        participants.liveness, "started", lambda asked: started(asked) + (asked == pid)
    )
    assert queue.get(timeout=5).deliveries == 2
    assert queue.stats().died == 1


def test_a_message_whose_consumers_all_die_is_kept_as_dead(
    queue: shmq.Queue, children: Children
) -> None:
    queue.put(b"deadly")
    for _ in range(queue.settings.max_deliveries):
        has_taken = Flag()
        pid = children.start(partial(take_and_sleep, queue, has_taken))
        has_taken.wait()
        kill(pid)
    with pytest.raises(shmq.QueueEmpty):
        queue.get(timeout=1)
    stats = queue.stats()
    assert (stats.dead, stats.died, stats.in_flight) == (1, queue.settings.max_deliveries, 0)


def test_close_returns_leases_at_once(queue: shmq.Queue) -> None:
    queue.put(b"handed back")
    other = shmq.open(queue.name, durable=False)
    assert other.get(timeout=1).deliveries == 1
    other.close()
    assert queue.get(timeout=0).deliveries == 2
    assert queue.stats().died == 0


def reservations(queue: shmq.Queue) -> int:
    at = queue._segments.queue_plan.reservations_at
    table = np.frombuffer(queue._segments.queue_map, layout.RESERVATION, layout.RESERVATIONS, at)
    return int(np.count_nonzero((table["tag"] & 0xFF) == layout.RESERVED))


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "died"])
def test_space_lent_to_a_process_that_ended_is_free_again(
    queue: shmq.Queue, children: Children, is_closed: bool
) -> None:
    def work() -> None:
        queue.reserve(8000).__enter__()
        assert reservations(queue) == 1
        if is_closed:
            queue.close()

    assert status_of(children.start(work)) == 0
    with pytest.raises(shmq.QueueEmpty):
        queue.get(timeout=1)
    assert reservations(queue) == 0


def open_put_and_leave_without_closing(name: str) -> None:
    shmq.open(name, durable=False).put(b"x")


def test_producers_that_never_close_do_not_use_up_the_handles(
    queue: shmq.Queue, children: Children
) -> None:
    for _ in range(layout.PARTICIPANTS + 8):
        pid = children.start(partial(open_put_and_leave_without_closing, queue.name))
        assert status_of(pid) == 0


# Interruptions


def interrupt(pid: int) -> None:
    time.sleep(0.3)
    os.kill(pid, signal.SIGINT)


def interrupted(children: Children, call: Callable[[], object]) -> float:
    """Seconds until a call that waits for ever was ended by Ctrl-C."""
    children.start(partial(interrupt, os.getpid()))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call()
    return time.monotonic() - began


def test_ctrl_c_ends_a_get_that_waits(queue: shmq.Queue, children: Children) -> None:
    assert interrupted(children, queue.get) < 5
    queue.put(b"still works")
    assert queue.get(timeout=1).body == b"still works"


def test_ctrl_c_ends_a_put_that_waits(queue: shmq.Queue, children: Children) -> None:
    count = 0
    while True:
        try:
            queue.put(bytes(4000), timeout=0)
        except shmq.QueueFull:
            break
        count += 1
    assert interrupted(children, partial(queue.put, bytes(4000))) < 5
    assert queue.stats().puts == count
    queue.ack(queue.get_many(count, timeout=1))
    queue.put(b"still works", timeout=1)
