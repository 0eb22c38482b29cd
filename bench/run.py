"""One pass of one line: two children, a common start, a deadline, and nothing left."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from bench.lines import LATENCY, Line
from bench.workers import RECEIVER, SENDER, Order, Outcome, work

START_LIMIT = 20.0  # s for the children to be ready
RUN_LIMIT = 40.0  # s for one pass


class LineFailed(Exception):
    """Raised when a pass gave no figure: an error, a wrong message, or the deadline."""


@dataclass(frozen=True)
class Pass:
    """The figures of one pass; a rate, or a latency in µs at two percentiles."""

    build: str  # of shmq, as both children found it
    rate: float = 0.0
    p50: float = 0.0
    p99: float = 0.0


def measure(line: Line, count: int) -> Pass:
    """Run the line once."""
    context = multiprocessing.get_context("spawn")
    peers = [line.peer() for _ in range(2 if line.workload == LATENCY else 1)]
    processes: list[SpawnProcess] = []
    pipes: list[Connection] = []
    # Its start, at the first spawn otherwise, would let the held signals through.
    resource_tracker.ensure_running()
    try:
        with _undisturbed():
            for peer in peers:
                peer.make()
            for role in (RECEIVER, SENDER):
                ours, theirs = context.Pipe()
                limit = int(START_LIMIT + RUN_LIMIT) + 10
                order = Order(role, line.workload, count, line.build, limit)
                process = context.Process(target=work, args=(order, peers, theirs))
                process.start()
                theirs.close()
                processes.append(process)
                pipes.append(ours)
        build = _answers(pipes, START_LIMIT)[0].build
        go = time.perf_counter_ns()
        for pipe in pipes:
            pipe.send("go")
        receiver, sender = _answers(pipes, RUN_LIMIT)
        if receiver.messages != count:
            raise LineFailed(f"{receiver.messages} of {count} messages arrived")
        for pipe in pipes:
            pipe.send("leave")
        if sender.round_trips:
            times = sorted(sender.round_trips)
            return Pass(build, p50=times[count // 2] / 1000, p99=times[count * 99 // 100] / 1000)
        return Pass(build, rate=count / (receiver.finished_at - go) * 1e9)
    finally:
        with _undisturbed():
            for process in processes:
                process.kill()
                process.join()
                process.close()
            for pipe in pipes:
                pipe.close()
            for peer in peers:
                peer.close()


def _answers(pipes: list[Connection], limit: float) -> list[Outcome]:
    """What both children say next; LineFailed at the first bad news or when time is up."""
    deadline = time.monotonic() + limit
    answers: dict[Connection, Outcome] = {}
    while len(answers) < len(pipes):
        waiting = [pipe for pipe in pipes if pipe not in answers]
        ready = multiprocessing.connection.wait(waiting, deadline - time.monotonic())
        if not ready:
            raise LineFailed(f"no answer within {limit:.0f} s")
        for pipe in waiting:
            if pipe in ready:
                try:
                    outcome: Outcome = pipe.recv()
                except (EOFError, ConnectionError):
                    raise LineFailed("a child died")
                if outcome.error:
                    raise LineFailed(outcome.error)
                answers[pipe] = outcome
    return [answers[pipe] for pipe in pipes]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back; children started inside never see them."""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
