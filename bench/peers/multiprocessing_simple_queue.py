"""multiprocessing.SimpleQueue: a pipe and a lock at each end, no thread, pickles."""

import multiprocessing
from multiprocessing.queues import SimpleQueue

from bench.peers import Peer


class MultiprocessingSimpleQueue(Peer):
    """Measured one by one only: in batches it does what multiprocessing.Queue does."""

    name = "multiprocessing.SimpleQueue"

    def __init__(self) -> None:
        self._queue: SimpleQueue[bytes] | None = None

    def make(self) -> None:
        self._queue = multiprocessing.get_context("spawn").SimpleQueue()

    def send(self, bodies: list[bytes]) -> None:
        assert self._queue is not None
        put = self._queue.put
        for body in bodies:
            put(body)

    def receive(self, count: int) -> list[bytes]:
        assert self._queue is not None
        get = self._queue.get
        return [get() for _ in range(count)]

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = None
