"""faster-fifo as installed: a ring in shared memory under a mutex, pickles."""

from typing import Any

from bench.peers import Peer


class FasterFifo(Peer):
    """Every setting at its default; put_many and get_many are its own."""

    name = "faster-fifo"
    package = "faster_fifo"

    def __init__(self) -> None:
        self._queue: Any = None

    def make(self) -> None:
        import faster_fifo

        self._queue = faster_fifo.Queue()

    def send(self, bodies: list[bytes]) -> None:
        put = self._queue.put
        for body in bodies:
            put(body)

    def receive(self, count: int) -> list[bytes]:
        get = self._queue.get
        return [get() for _ in range(count)]

    def send_many(self, batches: list[list[bytes]]) -> None:
        put_many = self._queue.put_many
        for batch in batches:
            put_many(batch)

    def receive_many(self, count: int, limit: int) -> list[bytes]:
        get_many = self._queue.get_many
        bodies: list[bytes] = []
        while len(bodies) < count:
            bodies += get_many(max_messages_to_get=min(limit, count - len(bodies)))
        return bodies

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = None
