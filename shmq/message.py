# cython: annotation_typing=False
"""A message as its consumer holds it: the body, what is known about it, and its lease."""

from types import TracebackType


class Holder:
    """What a message is settled with: the group that leased it."""

    def acknowledge(self, row: int, tag: int) -> None:
        """Finish a message; StaleReceipt if the lease was lost."""
        raise NotImplementedError

    def put_back(self, row: int, tag: int, delay: float | None, reason: str) -> None:
        """Have a message delivered again; StaleReceipt if the lease was lost."""
        raise NotImplementedError

    def give_up(self, row: int, tag: int, reason: str) -> None:
        """Have a message never delivered again; StaleReceipt if the lease was lost."""
        raise NotImplementedError

    def prolong(self, row: int, tag: int, seconds: float) -> None:
        """Let a lease run for `seconds` from now; StaleReceipt if it was lost."""
        raise NotImplementedError


class Message:
    """One delivery of a message. Made by `get`; settle it with ack, nack or reject.

    As a context manager it is acked on leaving, or nacked if an exception escapes.
    """

    __slots__ = (
        "_holder", "_is_settled", "_row", "_tag", "body", "deliveries", "seq", "timestamp",
    )  # fmt: skip

    _holder: Holder
    _row: int
    _tag: int
    _is_settled: bool
    seq: int  # the message's id
    body: bytes
    timestamp: int  # when it was put, ns since the epoch
    deliveries: int  # this one included

    @property
    def receipt(self) -> int:
        """What names this delivery, and no other, to the queue."""
        return ((self._tag >> 8) << 24) | self._row

    def ack(self, *, sync: bool = False) -> None:
        """Finish the message. StaleReceipt if the lease was lost: somebody else has it.

        `sync` is for durable queues; in memory there is nothing to wait for.
        """
        self._holder.acknowledge(self._row, self._tag)
        self._is_settled = True

    def nack(self, *, delay: float | None = None, reason: str = "") -> None:
        """Have it delivered again after `delay` seconds; None: the queue's backoff."""
        self._holder.put_back(self._row, self._tag, delay, reason)
        self._is_settled = True

    def reject(self, *, reason: str = "") -> None:
        """Give the message up: it is kept as dead and not delivered again."""
        self._holder.give_up(self._row, self._tag, reason)
        self._is_settled = True

    def extend(self, seconds: float) -> None:
        """Let the lease run for `seconds` from now."""
        self._holder.prolong(self._row, self._tag, seconds)

    def __enter__(self) -> "Message":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_settled:
            return
        if error is None:
            self.ack()
        else:
            self.nack(reason=f"{type(error).__name__}: {error}")

    def __repr__(self) -> str:
        return f"<Message {self.seq}: {len(self.body)} bytes, delivery {self.deliveries}>"
