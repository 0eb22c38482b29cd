"""A message leased for long is stepped over: producers never wait for it."""

import pytest

from shmq.clock import Clock
from shmq.queue import Queue, attach, delete

RING = 256 * 1024
SETTINGS = {"ring_bytes": RING, "max_message": 16 * 1024, "rows": 64, "index_entries": 256}


def flow(queue: Queue, total: int) -> int:
    """Let `total` bytes of messages of many sizes pass; how many messages that were."""
    count = passed = 0
    while passed < total:
        size = (count * 7919) % (16 * 1024) + 1
        body = count.to_bytes(8, "little") + bytes(size)
        body = body[: 16 * 1024]
        queue.put(body, timeout=0)  # QueueFull at once if it had to wait
        message = queue.get(timeout=0)
        assert message.body == body
        message.ack()
        passed += len(body)
        count += 1
    return count


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.freeze()  # no lease ends, however long the test takes
    return clock


def test_a_long_lease_never_holds_producers_up(name: str, clock: Clock) -> None:
    queue = attach(name, SETTINGS, create=True, clock=clock)
    try:
        body = bytes(range(256)) * 40
        queue.put(body)
        leased = queue.get()
        flow(queue, 100 * RING)
        assert leased.body == body
        leased.nack(delay=0)  # read again from where it lay all the time
        again = queue.get(timeout=0)
        assert (again.seq, again.body, again.deliveries) == (leased.seq, body, 2)
        again.ack()
        assert queue.stats().in_flight == 0
    finally:
        queue.close()
        delete(name, force=True)


def test_leases_all_over_the_ring_and_a_dead_message_hold_nobody_up(
    name: str, clock: Clock
) -> None:
    queue = attach(name, SETTINGS, create=True, clock=clock)
    try:
        kept = []
        for number in range(6):
            body = bytes([number]) * (500 + 700 * number)
            queue.put(body, timeout=0)
            kept.append((queue.get(timeout=0), body))
            flow(queue, RING // 6)
        dead, _ = kept.pop(3)
        dead.reject(reason="for the test")
        waiting, waiting_body = kept.pop(1)
        waiting.nack(delay=60)
        flow(queue, 100 * RING)
        for message, body in kept:
            message.nack(delay=0)
            again = queue.get(timeout=0)
            assert (again.seq, again.body) == (message.seq, body)
            again.ack()
        clock.advance(61)
        again = queue.get(timeout=0.5)
        assert (again.seq, again.body) == (waiting.seq, waiting_body)
        again.ack()
        stats = queue.stats()
        assert (stats.dead, stats.in_flight, stats.waiting, stats.ready) == (1, 0, 0, 0)
        assert stats.acks == stats.puts - 1
    finally:
        queue.close()
        delete(name, force=True)
