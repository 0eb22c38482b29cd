"""What is measured, and what is demanded of it: the table of lines, the criteria."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.builds import COMPILED, INTERPRETED
from bench.peers import Peer
from bench.peers.faster_fifo_queue import FasterFifo
from bench.peers.multiprocessing_queue import MultiprocessingQueue
from bench.peers.multiprocessing_simple_queue import MultiprocessingSimpleQueue
from bench.peers.shmq_memory import Shmq

ONE_BY_ONE, BATCHES, LATENCY = "W1", "W2", "W4"
TITLES = {
    ONE_BY_ONE: "one by one, messages a second",
    BATCHES: "batches of 100, messages a second",
    LATENCY: "round trip over two queues, microseconds",
}
BODY_BYTES = 100
BATCH = 100
CYCLE = 10_000  # distinct bodies; every count of messages is a multiple


@dataclass(frozen=True)
class Line:
    """One queue under one workload; `count` messages, or round trips, in one pass."""

    workload: str
    peer: Callable[[], Peer]
    count: int
    build: str = ""  # of shmq; nothing for the rivals

    @property
    def name(self) -> str:
        """How the line is called in the tables and in the criteria."""
        return f"{self.peer().name} {self.build}".strip()


# Counts such that a pass takes about a second each.
LINES = (
    Line(ONE_BY_ONE, Shmq, 1_000_000, COMPILED),
    Line(ONE_BY_ONE, Shmq, 100_000, INTERPRETED),
    Line(ONE_BY_ONE, MultiprocessingQueue, 200_000),
    Line(ONE_BY_ONE, MultiprocessingSimpleQueue, 200_000),
    Line(ONE_BY_ONE, FasterFifo, 200_000),
    Line(BATCHES, Shmq, 2_000_000, COMPILED),
    Line(BATCHES, Shmq, 100_000, INTERPRETED),
    Line(BATCHES, MultiprocessingQueue, 2_000_000),
    Line(BATCHES, FasterFifo, 300_000),
    Line(LATENCY, Shmq, 10_000, COMPILED),
    Line(LATENCY, Shmq, 5_000, INTERPRETED),
    Line(LATENCY, MultiprocessingQueue, 10_000),
    Line(LATENCY, FasterFifo, 10_000),
)
NOTES = {(BATCHES, "multiprocessing.Queue"): "each batch a list in one message"}


@dataclass(frozen=True)
class Criterion:
    """A line shall have at least so many times the speed of another one."""

    workload: str
    line: str
    rival: str
    at_least: float


CRITERIA = (
    Criterion(ONE_BY_ONE, "shmq compiled", "multiprocessing.Queue", 5.0),
    Criterion(ONE_BY_ONE, "shmq compiled", "faster-fifo", 5.0),
    Criterion(BATCHES, "shmq compiled", "faster-fifo", 10.0),
    Criterion(ONE_BY_ONE, "shmq interpreted", "multiprocessing.Queue", 0.4),
)
