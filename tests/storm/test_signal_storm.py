"""The signal storm: handlers raise inside calls; no lock is leaked and nothing is lost.

On the interpreted build a handler can strike between any two bytecodes, inside the lock
included; on the compiled one only where a call waits, and between its end and its caller.
"""

import os
import random
import signal
import threading
import time
import traceback
from pathlib import Path

import pytest

import shmq

from .accounts import Ledger, Page, unrest
from .master import Storm
from .target import Target
from .workers import OVER, RUNNING, SETTINGS, Consumer, produce

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

STRIKES = 2000
SECONDS = 90.0


def be_a_target(queue: shmq.Queue, directory: Path, strikes_per_call: int, threads: int) -> None:
    """What the struck process does; its other threads are left alone."""
    phase = [RUNNING]
    ledger = Ledger()
    pages = [Page() for _ in range(threads)]
    failures: list[str] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        try:
            if number % 2:
                produce(queue, pages[number], rng, lambda: phase[0])
            else:
                Consumer(queue, pages[number], rng, lambda: phase[0]).run()
        except BaseException:
            failures.append(traceback.format_exc())

    for number, page in enumerate(pages):
        page.turn((1 << 18) + number)
    others = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in others:
        thread.start()
    target = Target(queue, seed=1, first=1 << 19, strikes_per_call=strikes_per_call)
    target.run(STRIKES, SECONDS)
    phase[0] = OVER
    for thread in others:
        thread.join(30)
        assert not thread.is_alive(), "a thread hangs"
    assert not failures, failures[0]
    for number, page in enumerate(pages):
        if number % 2:
            ledger.add_producer(page)
        else:
            ledger.add_consumer(page)
    target.save(directory / "target.npz")
    ledger.save(directory / "threads.npz")


def weather(name: str, directory: Path, *, strikes_per_call: int = 1, threads: int = 0) -> None:
    """Strike one process while two others work on the same queue; judge what is left."""
    queue = shmq.open(name, durable=False, **{**SETTINGS, "visibility": 0.5})
    storm = Storm(queue, directory, seed=1, workers=1)
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            be_a_target(queue, directory, strikes_per_call, threads)
            status = 0
        except BaseException:
            (directory / "target.txt").write_text(traceback.format_exc())
        finally:
            os._exit(status)
    try:
        rng = random.Random(2)
        time.sleep(0.5)  # until it has its handlers
        while not (found := os.waitpid(pid, os.WNOHANG))[0]:
            time.sleep(rng.random() * 0.003)
            os.kill(pid, signal.SIGINT)
            storm.tend()
        pid = 0
        assert found[1] == 0, (directory / "target.txt").read_text()
        storm.stop_producers()
        storm.drain()
        storm.stop_consumers()
        print(f"\n{STRIKES} strikes in {time.monotonic() - began:.1f} s; {storm.describe()}")
        with pytest.raises(shmq.QueueEmpty):
            queue.get(timeout=0.6)
        storm.ledger.merge(directory / "target.npz")
        storm.ledger.merge(directory / "threads.npz")
        stats = queue.stats()
        assert storm.ledger.faults(stats.puts) == []
        assert unrest(queue) == []
        assert stats.acks == stats.puts
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        storm.kill_all()
        queue.close()
        shmq.delete(name, durable=False, force=True)


def test_handlers_that_raise_leak_no_lock_and_lose_nothing(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path)


def test_a_second_strike_during_the_clean_up_does_no_harm(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, strikes_per_call=2)


def test_threads_that_share_the_handle_are_not_harmed(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, threads=3)
