"""What the processes of a storm do until they are killed."""

import random
import struct
import time
from collections.abc import Callable
from typing import Any

from shmq import Message, Queue, QueueEmpty, QueueFull, StaleReceipt

from .accounts import ACKED, ACKING, GIVEN_BACK, Page

SETTINGS: dict[str, Any] = {
    "visibility": 5.0,
    "max_deliveries": 1_000_000,
    "ring_bytes": 512 * 1024,
    "max_message": 32 * 1024,
    "index_entries": 1024,
    "rows": 512,
}
PUT_TIMEOUT = 0.3
GET_TIMEOUT = 0.2
RUNNING, DRAINING, OVER = range(3)  # what a storm's workers are told

_HEAD = struct.Struct("<QQ")  # key, length of the body
_FILLER = random.Random(0).randbytes(1 << 17)
_BATCH = 24

Phase = Callable[[], int]


def body(key: int, size: int) -> bytes:
    """The body of a message: who it is, and bytes that only it has there."""
    start = key * 2_654_435_761 % (1 << 16)
    return _HEAD.pack(key, size) + _FILLER[start : start + size - _HEAD.size]


def key_of(message: Message) -> int:
    """Which message a body is; AssertionError if any byte of it is wrong."""
    key, size = _HEAD.unpack_from(message.body)
    assert message.body == body(key, size), f"message {message.seq}: its body is damaged"
    return int(key)


def random_size(rng: random.Random) -> int:
    """Mostly short; now and then beyond 4096, where bodies are copied outside the lock."""
    longest = rng.choices((200, 4_000, 12_000, 32_768), (70, 20, 8, 2))[0]
    return rng.randint(_HEAD.size, longest)


def put(queue: Queue, bodies: list[bytes], rng: random.Random) -> list[int]:
    """Put them in one of the ways there are; their seqs."""
    if len(bodies) > 1:
        return list(queue.put_many(bodies, timeout=PUT_TIMEOUT))
    if rng.random() < 0.1:
        reservation = queue.reserve(len(bodies[0]), timeout=PUT_TIMEOUT)
        with reservation as view:
            view[:] = bodies[0]
        return [reservation.seq]
    return [queue.put(bodies[0], timeout=PUT_TIMEOUT)]


def produce(queue: Queue, page: Page, rng: random.Random, phase: Phase) -> None:
    """Put messages until told to stop or the page is full."""
    n = 0
    while phase() == RUNNING and page.room >= _BATCH:
        first = page.incarnation << 32 | n
        count = rng.randint(2, _BATCH) if rng.random() < 0.15 else 1
        longest = SETTINGS["ring_bytes"] // 4 // _BATCH - 64 if count > 1 else 1 << 30
        bodies = [body(first + i, min(random_size(rng), longest)) for i in range(count)]
        page.attempt(n + count)
        try:
            with page:
                seqs = put(queue, bodies, rng)
        except QueueFull:
            continue
        for i, seq in enumerate(seqs):
            page.write(first + i, seq)
        n += count


class Consumer:
    """Takes messages and settles them in every way but one: nothing is given up."""

    def __init__(self, queue: Queue, page: Page, rng: random.Random, phase: Phase) -> None:
        self._queue = queue
        self._page = page
        self._rng = rng
        self._phase = phase
        self._held: list[tuple[int, Message]] = []
        self._oldest = 0.0

    def run(self) -> None:
        """Consume until the storm is over or the page is full."""
        while self._phase() != OVER and self._page.room >= 64:
            try:
                messages = self._get()
            except QueueEmpty:
                messages = []
            if not self._held:
                self._oldest = time.monotonic()
            self._held += [
                (self._page.write(key_of(message), message.seq, message.deliveries), message)
                for message in messages
            ]
            self._settle()

    def _get(self) -> list[Message]:
        limit = self._rng.choices((1, 3, 48), (6, 3, 1))[0]
        with self._page:
            if limit == 1:
                return [self._queue.get(timeout=GET_TIMEOUT)]
            return self._queue.get_many(limit, timeout=GET_TIMEOUT)

    def _settle(self) -> None:
        """Ack what is held, together or one by one, give it back, or go on holding it."""
        choice = self._rng.random()
        if self._phase() == RUNNING and choice < 0.2 and len(self._held) < 16:
            return
        held, self._held = self._held, []
        try:
            if self._phase() == RUNNING and choice < 0.35:
                delay = self._rng.choice((0, 0, 0.01))
                for entry, message in held:
                    with self._page:
                        message.nack(delay=delay)
                    self._page.mark(entry, GIVEN_BACK)
            elif choice < 0.6:
                self._mark(held, ACKING)
                with self._page:
                    self._queue.ack([message for _, message in held])
                self._mark(held, ACKED)
            else:
                for entry, message in held:
                    self._page.mark(entry, ACKING)
                    with self._page:
                        message.ack()
                    self._page.mark(entry, ACKED)
        except StaleReceipt:
            # Only a worker that slept through its visibility may lose a lease.
            if time.monotonic() - self._oldest < 0.9 * self._queue.settings.visibility:
                raise

    def _mark(self, held: list[tuple[int, Message]], state: int) -> None:
        for entry, _ in held:
            self._page.mark(entry, state)
