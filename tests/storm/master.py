"""The parent of a storm: forks workers, kills them at random, watches that none hangs."""

import gc
import mmap
import os
import random
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import shmq

from .accounts import Ledger, Page
from .workers import DRAINING, OVER, Consumer, produce

LIMIT = 1.0  # s that a living worker may spend in one call
PRODUCER, CONSUMER = range(2)


@dataclass
class Worker:
    """One of the workers that are always there; who it is changes with each death."""

    role: int
    page: Page = field(default_factory=Page)
    pid: int = 0
    call: int = 0  # the call that the watch saw last
    excused: int = 0  # what was excused when it began


class Storm:
    """Some producers and consumers of one queue, and what they have done so far."""

    def __init__(
        self, queue: shmq.Queue, directory: Path, seed: int, *, workers: int = 3, first: int = 1
    ) -> None:
        self.ledger = Ledger()
        self.kills = 0
        self.longest = 0  # ns, of any call that ended
        self._queue = queue
        self._directory = directory
        self._rng = random.Random(seed)
        self._phase = mmap.mmap(-1, 8)
        self._next = first
        self._excused = 0  # ns that no worker is to blame for
        self._zombies: list[int] = []
        self._workers = [Worker(role) for role in (PRODUCER, CONSUMER) for _ in range(workers)]
        for worker in self._workers:
            self._start(worker)

    def run(self, kills: int, *, with_stops: bool = False, report: int = 0) -> None:
        """Kill this many more; every `report` kills say how it goes."""
        goal = self.kills + kills
        while self.kills < goal:
            self._sleep(self._rng.random() ** 2 * 0.008)
            self.watch()
            worker = self._rng.choice(self._workers)
            if with_stops and self._rng.random() < 0.05:
                self._stop_for_a_while(worker)
                continue
            os.kill(worker.pid, signal.SIGKILL)
            self._bury(worker)
            self._start(worker)
            if report and self.kills % report == 0:
                print(f"\n{self.describe()}", end="", flush=True)

    def describe(self) -> str:
        """The figures so far, in one line."""
        return (
            f"{self.kills} kills, {self._queue.stats().recoveries} transactions undone, "
            f"{self.ledger.puts} puts, {self.ledger.deliveries} deliveries, "
            f"longest call {self.longest / 1e9:.3f} s"
        )

    def stop_producers(self) -> None:
        """Have the producers leave; from now on consumers only ack."""
        self._phase[0] = DRAINING
        self._dismiss(PRODUCER)

    def drain(self, seconds: float = 30.0) -> None:
        """Watch until nothing is left in the queue."""
        deadline = time.monotonic() + seconds
        while True:
            stats = self._queue.stats()
            if stats.ready == stats.in_flight == stats.waiting == 0:
                return
            assert time.monotonic() < deadline, f"not drained after {seconds} s: {stats}"
            self._sleep(0.01)
            self.tend()

    def tend(self) -> None:
        """Watch, and replace the workers that left because their page was full."""
        self.watch()
        for worker in self._workers:
            if worker.pid and _has_exited(worker.pid):
                self._bury(worker)
                self._start(worker)

    def stop_consumers(self) -> None:
        """Have the consumers leave; everything is in the ledger then."""
        self._phase[0] = OVER
        self._dismiss(CONSUMER)
        self._reap()

    def kill_all(self) -> None:
        """Leave no process behind, whatever went wrong."""
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, signal.SIGKILL)
                self._zombies.append(worker.pid)
        self._reap()

    def watch(self) -> None:
        """Fail if a worker died of something else, or a living one is stuck in a call."""
        now = time.monotonic_ns()
        for worker in self._workers:
            if not worker.pid:
                continue
            call = worker.page.in_call_since
            if call != worker.call:
                worker.call, worker.excused = call, self._excused
            waited = (now - call - (self._excused - worker.excused)) / 1e9
            if call and waited > LIMIT and not _has_exited(worker.pid):
                stack = Path(f"/proc/{worker.pid}/wchan").read_text()
                raise AssertionError(
                    f"worker {worker.pid}, role {worker.role}, has been in one call for "
                    f"{waited:.3f} s, in {stack}: {self._queue.stats()}"
                )

    def _start(self, worker: Worker) -> None:
        worker.page.turn(self._next)
        worker.call = 0
        self._next += 1
        seed = self._rng.getrandbits(64)
        worker.pid = os.fork()
        if worker.pid:
            return
        status = 1
        try:
            gc.freeze()
            self._work(worker, random.Random(seed))
            status = 0
        except BaseException:
            text = traceback.format_exc()
            (self._directory / f"worker-{os.getpid()}.txt").write_text(text)
        finally:
            os._exit(status)

    def _work(self, worker: Worker, rng: random.Random) -> None:
        queue = self._queue
        if rng.random() < 0.5:
            queue = shmq.open(queue.name, durable=False, create=False)
        if worker.role == PRODUCER:
            produce(queue, worker.page, rng, lambda: self._phase[0])
        else:
            Consumer(queue, worker.page, rng, lambda: self._phase[0]).run()
        if rng.random() < 0.5:
            queue.close()

    def _stop_for_a_while(self, worker: Worker) -> None:
        began = time.monotonic_ns()
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(self._rng.random() * 0.25)
        os.kill(worker.pid, signal.SIGCONT)
        self._excused += time.monotonic_ns() - began

    def _sleep(self, seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        late = time.monotonic() - began - seconds
        if late > 0.05:
            self._excused += int(late * 1e9)  # the machine was busy elsewhere, for us all

    def _bury(self, worker: Worker) -> None:
        """Wait for a worker that was told or made to go, and take over its page."""
        result = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        assert result is not None
        if result.si_code == os.CLD_EXITED:
            error = self._directory / f"worker-{worker.pid}.txt"
            assert result.si_status == 0, error.read_text()
        else:
            assert result.si_status == signal.SIGKILL, f"a worker died of {result.si_status}"
            self.kills += 1
        if worker.role == PRODUCER:
            self.ledger.add_producer(worker.page)
        else:
            self.ledger.add_consumer(worker.page)
        self.longest = max(self.longest, worker.page.longest)
        # Some stay zombies for a while: they must count as dead.
        self._zombies.append(worker.pid)
        worker.pid = 0
        if self._rng.random() < 0.8:
            self._reap()

    def _dismiss(self, role: int) -> None:
        leaving = [worker for worker in self._workers if worker.role == role]
        while not all(_has_exited(worker.pid) for worker in leaving):
            self._sleep(0.005)
            self.watch()
        for worker in leaving:
            self._bury(worker)

    def _reap(self) -> None:
        for pid in self._zombies:
            os.waitpid(pid, 0)
        self._zombies.clear()


def _has_exited(pid: int) -> bool:
    return pid == 0 or bool(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG))
