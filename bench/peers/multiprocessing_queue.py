"""multiprocessing.Queue: a pipe, a lock at each end, a feeder thread, pickles."""

import multiprocessing
from multiprocessing.queues import Queue

from bench.peers import Peer


class MultiprocessingQueue(Peer):
    """It has no batches; a list of bodies as one message is what a user would send."""

    name = "multiprocessing.Queue"

    def __init__(self) -> None:
        self._queue: Queue[bytes | list[bytes]] | None = None

    def make(self) -> None:
        self._queue = multiprocessing.get_context("spawn").Queue()

    def send(self, bodies: list[bytes]) -> None:
        assert self._queue is not None
        put = self._queue.put
        for body in bodies:
            put(body)

    def receive(self, count: int) -> list[bytes]:
        assert self._queue is not None
        get = self._queue.get
        return [get() for _ in range(count)]  # type: ignore[misc]

    def send_many(self, batches: list[list[bytes]]) -> None:
        assert self._queue is not None
        put = self._queue.put
        for batch in batches:
            put(batch)

    def receive_many(self, count: int, limit: int) -> list[bytes]:
        assert self._queue is not None
        get = self._queue.get
        bodies: list[bytes] = []
        while len(bodies) < count:
            bodies += get()  # type: ignore[arg-type]
        return bodies

    def close(self) -> None:
        # Its named semaphores go with the last reference.
        if self._queue is not None:
            self._queue.close()
            self._queue = None
