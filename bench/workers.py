"""The two children of a line: one sends, one receives, and every byte is compared.

The bodies are a cycle of CYCLE distinct ones, made before the clock starts; the receiver
compares cycle after cycle, so that a message lost, doubled, changed or out of turn is found
where it happens and no list grows with the count.
"""

import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

from bench import builds
from bench.lines import BATCH, BATCHES, BODY_BYTES, CYCLE, LATENCY, ONE_BY_ONE
from bench.peers import Peer

SENDER, RECEIVER = "sender", "receiver"


@dataclass(frozen=True)
class Order:
    """What a child shall do."""

    role: str
    workload: str
    count: int
    build: str  # of shmq, or nothing
    limit: int  # s: after which it ends, whatever happens


@dataclass(frozen=True)
class Outcome:
    """What a child has to say: ready for the go, finished, or failed."""

    build: str = ""  # of shmq, as found in this process
    finished_at: int = 0  # ns of the clock that all processes share
    messages: int = 0  # compared and found as they were sent
    round_trips: tuple[int, ...] = ()  # ns
    error: str = ""


def work(order: Order, peers: list[Peer], pipe: Connection) -> None:
    """The life of a child: prepare, say so, wait for the go, run, report."""
    # The kernel ends a child that the parent cannot end any more.
    signal.alarm(order.limit)
    try:
        build = builds.use(order.build) if order.build else ""
        if build != order.build:
            raise RuntimeError(f"the {order.build} build is not installed here, only the {build}")
        for peer in peers:
            peer.open()
        bodies = [number.to_bytes(4, "little") * (BODY_BYTES // 4) for number in range(CYCLE)]
        pipe.send(Outcome(build=build))
        pipe.recv()
        pipe.send(_RUN[order.workload, order.role](peers, bodies, order.count))
        pipe.recv()
    except EOFError:
        pass  # the parent has gone
    except BaseException:
        pipe.send(Outcome(error=traceback.format_exc()))


def _send(peers: list[Peer], bodies: list[bytes], count: int) -> Outcome:
    for _ in range(count // CYCLE):
        peers[0].send(bodies)
    return Outcome()


def _receive(peers: list[Peer], bodies: list[bytes], count: int) -> Outcome:
    for cycle in range(count // CYCLE):
        _compare(peers[0].receive(CYCLE), bodies, cycle)
    return Outcome(finished_at=time.perf_counter_ns(), messages=count)


def _send_many(peers: list[Peer], bodies: list[bytes], count: int) -> Outcome:
    batches = [bodies[start : start + BATCH] for start in range(0, CYCLE, BATCH)]
    for _ in range(count // CYCLE):
        peers[0].send_many(batches)
    return Outcome()


def _receive_many(peers: list[Peer], bodies: list[bytes], count: int) -> Outcome:
    for cycle in range(count // CYCLE):
        _compare(peers[0].receive_many(CYCLE, BATCH), bodies, cycle)
    return Outcome(finished_at=time.perf_counter_ns(), messages=count)


def _ping(peers: list[Peer], bodies: list[bytes], count: int) -> Outcome:
    there, back = peers
    times = []
    for number in range(count):
        sent = [bodies[number % CYCLE]]
        start = time.perf_counter_ns()
        there.send(sent)
        answer = back.receive(1)
        times.append(time.perf_counter_ns() - start)
        if answer != sent:
            raise AssertionError(f"round trip {number} came back as {answer!r}")
    return Outcome(messages=count, round_trips=tuple(times))


def _pong(peers: list[Peer], bodies: list[bytes], count: int) -> Outcome:
    there, back = peers
    for _ in range(count):
        back.send(there.receive(1))
    return Outcome(finished_at=time.perf_counter_ns(), messages=count)


def _compare(received: list[bytes], sent: list[bytes], cycle: int) -> None:
    if received != sent:
        pairs = zip(received, sent, strict=False)
        place = next((n for n, (got, put) in enumerate(pairs) if got != put), len(sent))
        raise AssertionError(f"message {cycle * CYCLE + place} is not what was sent")


_RUN = {
    (ONE_BY_ONE, SENDER): _send,
    (ONE_BY_ONE, RECEIVER): _receive,
    (BATCHES, SENDER): _send_many,
    (BATCHES, RECEIVER): _receive_many,
    (LATENCY, SENDER): _ping,
    (LATENCY, RECEIVER): _pong,
}
