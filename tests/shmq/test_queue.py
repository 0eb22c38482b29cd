"""What a queue does for its user, in one process."""

import os
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq.clock import Clock
from shmq.queue import attach

SMALL: dict[str, Any] = {"ring_bytes": 65_536, "max_message": 8192, "rows": 16, "index_entries": 32}


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.freeze()
    return clock


@pytest.fixture
def q(name: str, clock: Clock) -> Iterator[shmq.Queue]:
    """A small queue whose time stands still."""
    queue = attach(name, SMALL, create=True, clock=clock)
    yield queue
    queue.close()
    shmq.delete(name, durable=False, force=True)


def drain(q: shmq.Queue) -> list[bytes]:
    bodies = []
    while True:
        try:
            with q.get(timeout=0) as m:
                bodies.append(m.body)
        except shmq.QueueEmpty:
            return bodies


def fill(q: shmq.Queue, body: bytes) -> int:
    for count in range(1_000):
        try:
            q.put(body, timeout=0)
        except shmq.QueueFull:
            return count
    raise AssertionError("the queue never filled up")


def test_messages_come_out_as_they_went_in(q: shmq.Queue) -> None:
    before = time.time_ns()
    seqs = [q.put(body) for body in (b"", b"a", bytearray(b"bc"), memoryview(b"def"))]
    assert seqs == [0, 1, 2, 3]
    messages = q.get_many(10, timeout=0)
    assert [m.body for m in messages] == [b"", b"a", b"bc", b"def"]
    assert [m.seq for m in messages] == seqs
    assert all(m.deliveries == 1 for m in messages)
    assert all(abs(m.timestamp - before) < 60e9 for m in messages)
    q.ack(messages)
    assert q.stats().acks == 4


@pytest.mark.parametrize("size", [1, 7, 8, 100, 4096, 4097, 8192])
def test_bodies_of_every_size_survive_many_laps(q: shmq.Queue, size: int) -> None:
    for lap in range(200):
        body = bytes([lap]) * size
        q.put(body, timeout=0)
        with q.get(timeout=0) as m:
            assert m.body == body


def test_a_batch_is_one_range_of_neighbours(q: shmq.Queue) -> None:
    q.put(b"before")
    assert q.put_many([b"a", b"b", b"c"]) == range(1, 4)
    assert q.put_many([]) == range(4, 4)
    assert drain(q) == [b"before", b"a", b"b", b"c"]


def test_a_batch_is_refused_whole_when_it_cannot_fit(q: shmq.Queue) -> None:
    with pytest.raises(shmq.MessageTooLarge, match="quarter"):
        q.put_many([bytes(4000)] * 5)
    with pytest.raises(shmq.MessageTooLarge, match="16 messages"):
        q.put_many([b"x"] * 17)
    with pytest.raises(shmq.MessageTooLarge):
        q.put_many([b"fine", bytes(8193)])
    assert q.stats().puts == 0


def test_too_large_and_wrong_types_are_told_at_once(q: shmq.Queue) -> None:
    with pytest.raises(shmq.MessageTooLarge, match="8,192"):
        q.put(bytes(8193))
    with pytest.raises(shmq.MessageTooLarge):
        q.reserve(8193)
    for wrong in ("text", 7, None, object()):
        with pytest.raises(TypeError):
            q.put(wrong)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ValueError, match="limit"):
        q.get_many(0)


def test_an_empty_queue_says_so_when_the_time_is_up(name: str) -> None:
    with shmq.open(name, durable=False, **SMALL) as q:
        with pytest.raises(shmq.QueueEmpty):
            q.get(timeout=0)
        with pytest.raises(shmq.QueueEmpty):
            q.get_many(3, timeout=0.05)
    shmq.delete(name, durable=False)


def test_a_full_queue_says_so_and_takes_again_after_an_ack(name: str) -> None:
    with shmq.open(name, durable=False, **SMALL) as q:
        assert fill(q, bytes(1000)) == 32
        with pytest.raises(shmq.QueueFull):
            q.put(b"", timeout=0.05)
        q.get().ack()
        q.put(bytes(1000), timeout=1)
    shmq.delete(name, durable=False)


def test_space_runs_out_before_entries_for_large_bodies(q: shmq.Queue) -> None:
    assert fill(q, bytes(8000)) == 8
    q.get().ack()
    q.put(bytes(8000), timeout=0)


def test_a_nacked_message_comes_back_before_newer_ones(q: shmq.Queue) -> None:
    q.put_many([b"a", b"b"])
    m = q.get(timeout=0)
    m.nack(delay=0)
    again = q.get(timeout=0)
    assert (again.body, again.deliveries, again.seq) == (b"a", 2, m.seq)
    assert again.receipt != m.receipt
    assert q.stats().nacks == 1


def test_a_delayed_nack_waits_for_its_time(q: shmq.Queue, clock: Clock) -> None:
    q.put(b"a")
    q.get(timeout=0).nack(delay=5)
    clock.advance(4.9)
    with pytest.raises(shmq.QueueEmpty):
        q.get(timeout=0)
    assert q.stats().waiting == 1
    clock.advance(0.2)
    assert q.get(timeout=0).deliveries == 2


def test_backoff_grows_and_is_capped(name: str, clock: Clock) -> None:
    given = {**SMALL, "backoff": (1.0, 2.0, 3.0), "max_deliveries": 10}
    q = attach(name, given, create=True, clock=clock)
    q.put(b"a")
    for wait in (1.0, 2.0, 3.0, 3.0):
        q.get(timeout=0).nack()
        clock.advance(wait - 0.01)
        with pytest.raises(shmq.QueueEmpty):
            q.get(timeout=0)
        clock.advance(0.06)
    q.get(timeout=0)
    q.close()
    shmq.delete(name, durable=False)


def test_an_expired_lease_is_delivered_again_and_its_receipt_is_stale(
    q: shmq.Queue, clock: Clock
) -> None:
    q.put(b"a")
    first = q.get(timeout=0)
    clock.advance(31)
    second = q.get(timeout=0)
    assert (second.seq, second.deliveries) == (first.seq, 2)
    with pytest.raises(shmq.StaleReceipt):
        first.ack()
    with pytest.raises(shmq.StaleReceipt):
        first.nack()
    with pytest.raises(shmq.StaleReceipt):
        first.reject()
    with pytest.raises(shmq.StaleReceipt):
        first.extend(1)
    second.ack()
    with pytest.raises(shmq.StaleReceipt):
        second.ack()
    stats = q.stats()
    assert (stats.expired, stats.acks, stats.in_flight) == (1, 1, 0)


def test_an_extended_lease_holds_longer(q: shmq.Queue, clock: Clock) -> None:
    q.put(b"a")
    m = q.get(timeout=0)
    clock.advance(29)
    m.extend(30)
    clock.advance(29)
    with pytest.raises(shmq.QueueEmpty):
        q.get(timeout=0)
    m.ack()


def test_a_message_delivered_too_often_is_kept_as_dead(q: shmq.Queue, clock: Clock) -> None:
    q.put(b"poison")
    for _ in range(3):
        q.get(timeout=0)
        clock.advance(31)
    with pytest.raises(shmq.QueueEmpty):
        q.get(timeout=0)
    stats = q.stats()
    assert (stats.dead, stats.expired, stats.ready, stats.in_flight) == (1, 3, 0, 0)


def test_a_rejected_message_is_kept_as_dead(q: shmq.Queue) -> None:
    q.put(b"a")
    q.get(timeout=0).reject(reason="no use")
    assert drain(q) == []
    assert (q.stats().dead, q.stats().rejects) == (1, 1)


def test_many_are_settled_at_once_and_the_stale_ones_are_named(q: shmq.Queue, clock: Clock) -> None:
    q.put_many([b"%d" % n for n in range(8)])
    messages = q.get_many(8, timeout=0)
    messages[3].ack()
    with pytest.raises(shmq.StaleReceipt, match="2 of 9") as caught:
        q.ack([*messages, messages[0]])
    assert caught.value.receipts == (messages[3].receipt, messages[0].receipt)
    assert q.stats().acks == 8


def test_rows_that_run_out_hold_consumers_not_producers(q: shmq.Queue) -> None:
    q.put_many([b"x"] * 16)
    q.put_many([b"y"] * 4)
    held = q.get_many(20, timeout=0)
    assert len(held) == 16
    with pytest.raises(shmq.QueueEmpty):
        q.get(timeout=0)
    q.ack(held)
    assert len(q.get_many(20, timeout=0)) == 4


def test_a_message_as_context_manager_is_acked_or_nacked(q: shmq.Queue, clock: Clock) -> None:
    q.put(b"a")
    with pytest.raises(ZeroDivisionError), q.get(timeout=0):
        _ = 1 / 0
    assert q.stats().nacks == 1
    clock.advance(2)
    with q.get(timeout=0) as m:
        m.ack()
    assert q.stats().acks == 1


def test_a_reservation_is_published_in_the_order_of_leaving(q: shmq.Queue) -> None:
    first, second = q.reserve(3), q.reserve(5)
    with first as one:
        with second as two:
            q.put(b"between")
            two[:] = b"inner"
        one[:] = b"out"
    assert drain(q) == [b"between", b"inner", b"out"]
    assert (second.seq, first.seq) == (1, 2)


def test_a_reservation_is_dropped_when_an_exception_escapes(q: shmq.Queue) -> None:
    with pytest.raises(ZeroDivisionError), q.reserve(8000):
        _ = 1 / 0
    assert q.stats().puts == 0
    for _ in range(50):
        with pytest.raises(ZeroDivisionError), q.reserve(8000, timeout=0):
            _ = 1 / 0
    q.put(b"still works", timeout=0)
    assert drain(q) == [b"still works"]


def test_a_reservation_held_for_long_holds_nobody_up(q: shmq.Queue) -> None:
    with q.reserve(4000) as buffer:
        for lap in range(500):
            body = bytes([lap % 256]) * 1000
            q.put(body, timeout=0)
            with q.get(timeout=0) as m:
                assert m.body == body
            buffer[lap] = 7
        assert bytes(buffer[:500]) == b"\7" * 500
        buffer[:] = b"z" * 4000
    q.put(b"after")
    assert drain(q) == [b"z" * 4000, b"after"]


def test_closing_returns_leases_at_once(q: shmq.Queue, name: str, clock: Clock) -> None:
    q.put(b"a")
    other = attach(name, clock=clock)
    other.get(timeout=0)
    with pytest.raises(shmq.QueueEmpty):
        q.get(timeout=0)
    other.close()
    other.close()
    assert q.get(timeout=0).deliveries == 2
    for call in (other.get, other.stats, lambda: other.put(b"x"), lambda: other.put_many([b"x"])):
        with pytest.raises(shmq.QueueClosed):
            call()


def test_closing_takes_an_open_reservation_back(q: shmq.Queue, name: str, clock: Clock) -> None:
    other = attach(name, clock=clock)
    reservation = other.reserve(8000)
    reservation.__enter__()
    other.close()
    with pytest.raises(shmq.ShmqError, match="taken back"):
        reservation.__exit__(None, None, None)
    assert (q.stats().puts, q.stats().attached) == (0, 1)
    for _ in range(20):
        q.put(bytes(8000), timeout=0)
        q.get(timeout=0).ack()


def test_iteration_ends_when_the_queue_is_closed(name: str) -> None:
    q = shmq.open(name, durable=False, **SMALL)
    q.put_many([b"a", b"b"])
    seen = []
    closer = threading.Timer(0.2, q.close)
    closer.start()
    for m in q:
        seen.append(m.body)
        m.ack()
    closer.join()
    assert seen == [b"a", b"b"]
    shmq.delete(name, durable=False)


def test_a_waiting_consumer_is_woken_by_a_put(name: str) -> None:
    with shmq.open(name, durable=False, **SMALL) as q:
        timer = threading.Timer(0.1, lambda: q.put(b"late"))
        timer.start()
        assert q.get(timeout=30).body == b"late"
        timer.join()
    shmq.delete(name, durable=False, force=True)


def test_a_waiting_producer_is_woken_by_acks(name: str) -> None:
    with shmq.open(name, durable=False, **SMALL) as q:
        q.put_many([b"x"] * 16)
        q.put_many([b"x"] * 16)
        timer = threading.Timer(0.1, lambda: drain(q))
        timer.start()
        q.put(b"late", timeout=30)
        timer.join()
    shmq.delete(name, durable=False, force=True)


def test_threads_share_one_handle(name: str) -> None:
    total, workers = 3000, 4
    seen: list[bytes] = []
    with shmq.open(name, durable=False, **SMALL) as q:

        def produce(worker: int) -> None:
            for n in range(total // workers):
                q.put(b"%d:%d" % (worker, n), timeout=60)

        def consume() -> None:
            while len(seen) < total:
                try:
                    batch = q.get_many(5, timeout=0.1)
                except shmq.QueueEmpty:
                    continue
                seen.extend(m.body for m in batch)
                q.ack(batch)

        threads = [threading.Thread(target=produce, args=(n,)) for n in range(workers)]
        threads += [threading.Thread(target=consume) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == len(set(seen)) == total
        assert q.stats().recoveries == 0
    shmq.delete(name, durable=False, force=True)


def test_a_pickled_queue_attaches_again(q: shmq.Queue) -> None:
    copy = pickle.loads(pickle.dumps(q))
    copy.put(b"through the copy")
    assert drain(q) == [b"through the copy"]
    copy.close()


def test_stats_account_for_every_message(q: shmq.Queue, clock: Clock) -> None:
    q.put_many([b"x"] * 10)
    messages = q.get_many(6, timeout=0)
    messages[0].ack()
    messages[1].nack(delay=0)
    messages[2].nack(delay=10)
    messages[3].reject()
    stats = q.stats()
    assert (stats.ready, stats.in_flight, stats.waiting, stats.dead, stats.acks) == (5, 2, 1, 1, 1)
    assert stats.puts == stats.ready + stats.in_flight + stats.waiting + stats.dead + stats.acks
    assert stats.gets == 6
    assert stats.attached == 1
    assert os.getpid() in [pid for _, pid in q.participants.alive()]
