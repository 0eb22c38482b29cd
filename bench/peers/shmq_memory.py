"""shmq's queue in memory: put / get + ack, put_many / get_many + ack."""

import itertools
import os

from bench.peers import Peer

_numbers = itertools.count()


class Shmq(Peer):
    """As `shmq.open` makes it: every setting at its default."""

    name = "shmq"

    def __init__(self) -> None:
        self._queue_name = f"bench-{os.getpid()}-{next(_numbers)}"

    def make(self) -> None:
        import shmq

        shmq.open(self._queue_name, durable=False).close()

    def open(self) -> None:
        import shmq

        self._queue = shmq.open(self._queue_name, durable=False, create=False)

    def send(self, bodies: list[bytes]) -> None:
        put = self._queue.put
        for body in bodies:
            put(body)

    def receive(self, count: int) -> list[bytes]:
        get = self._queue.get
        bodies = []
        for _ in range(count):
            message = get()
            message.ack()
            bodies.append(message.body)
        return bodies

    def send_many(self, batches: list[list[bytes]]) -> None:
        put_many = self._queue.put_many
        for batch in batches:
            put_many(batch)

    def receive_many(self, count: int, limit: int) -> list[bytes]:
        queue = self._queue
        bodies: list[bytes] = []
        while len(bodies) < count:
            messages = queue.get_many(min(limit, count - len(bodies)))
            queue.ack(messages)
            bodies += [message.body for message in messages]
        return bodies

    def close(self) -> None:
        import shmq

        try:
            shmq.delete(self._queue_name, durable=False, force=True)
        except shmq.QueueNotFound:
            pass
