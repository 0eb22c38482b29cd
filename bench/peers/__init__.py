"""What the harness asks of a queue. One file for each rival, shmq's own among them."""

import importlib.util


class Peer:
    """One queue between two processes.

    Made in the parent, pickled into both children. A peer has the loops, not single calls, so
    that the harness adds nothing to what a user of that queue would write.
    """

    name = ""
    package = ""  # what has to be installed for it, if anything

    def is_absent(self) -> bool:
        """Whether its package is not installed here."""
        return bool(self.package) and importlib.util.find_spec(self.package) is None

    def make(self) -> None:
        """In the parent: bring the queue into being."""
        raise NotImplementedError

    def open(self) -> None:
        """In a child: be ready for the first message."""

    def send(self, bodies: list[bytes]) -> None:
        """Put the bodies one by one."""
        raise NotImplementedError

    def receive(self, count: int) -> list[bytes]:
        """Get so many bodies one by one, finished for good."""
        raise NotImplementedError

    def send_many(self, batches: list[list[bytes]]) -> None:
        """Put each batch at once."""
        raise NotImplementedError

    def receive_many(self, count: int, limit: int) -> list[bytes]:
        """Get so many bodies, up to `limit` at once, finished for good."""
        raise NotImplementedError

    def close(self) -> None:
        """In the parent: leave nothing behind, made or not."""
        raise NotImplementedError
