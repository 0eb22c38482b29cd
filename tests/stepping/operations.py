"""Every operation, each with the busy queue it is killed in.

A case makes its state with the handle it is given and answers with the operation. The queue
has been round its ring and its index once, and holds messages in every state.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shmq import layout
from shmq.clock import Clock
from shmq.message import Message
from shmq.queue import Queue, attach

from .stepper import Operation

VISIBILITY = 3600.0
SETTINGS = {
    "ring_bytes": 16384,
    "max_message": 2048,
    "index_entries": 8,
    "rows": 10,
    "max_deliveries": 3,
    "visibility": VISIBILITY,
}
LARGE = {"ring_bytes": 65536, "max_message": 8192}
NOBODY = 2**22 + 1  # beyond every pid that Linux gives out


class Case(NamedTuple):
    """How to come to an operation, and how many transactions it is made of."""

    prepare: Callable[[Queue, Clock], Operation]
    transactions: int
    settings: Mapping[str, int] = MappingProxyType({})
    every: int = 1  # instructions for a kill; more only where they are tens of thousands


def body_of(seq: int, length: int) -> bytes:
    """The body that a message is put with here: told by its seq, so that any can be compared."""
    return (f"{seq} ".encode() * length)[:length]


def participants(queue: Queue) -> NDArray[Any]:
    """The participant table, to read and to write."""
    segments = queue._segments
    at = segments.queue_plan.participants_at
    return np.frombuffer(segments.queue_map, layout.PARTICIPANT, layout.PARTICIPANTS, at)


def _body(queue: Queue, size: int, ahead: int = 0) -> bytes:
    return body_of(queue.stats().puts + ahead, size)


def _busy(queue: Queue, *, is_returned: bool = True) -> list[Message]:
    """Acked, waiting, dead, returned and unread messages; those that are leased."""
    for _ in range(9):
        queue.put(_body(queue, 1800))
        queue.get().ack()
    for n in range(8):
        queue.put(_body(queue, 30 + 17 * n))
    messages = queue.get_many(8)
    queue.ack(messages[:2])
    messages[2].nack(delay=1)
    messages[3].reject()
    if is_returned:
        messages[4].nack(delay=0)
    else:
        messages[4].ack()
    for n in range(3):
        queue.put(_body(queue, 60 + n))
    return messages[5:]


def _put(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    body = _body(queue, 100)
    return lambda: queue.put(body)


def _put_many(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    bodies = [_body(queue, 50 + ahead, ahead) for ahead in range(3)]
    return lambda: queue.put_many(bodies)


def _put_large(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    body = _body(queue, 4200)
    return lambda: queue.put(body)


def _put_looking_for_room(queue: Queue, clock: Clock) -> Operation:
    """By a handle that knows no gaps yet, with a slot to free that was published late."""
    leased = _busy(queue)
    leased[0].nack(delay=0)
    reservation = queue.reserve(40)
    with reservation as view:
        view[:] = _body(queue, 40, 1)
        queue.put(_body(queue, 20))
    for _ in range(2):
        queue.ack(queue.get_many(8))
    other = attach(queue.name, clock=clock)
    body = _body(queue, 100)
    return lambda: other.put(body)


def _reserve(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    body = _body(queue, 100)

    def operation() -> None:
        with queue.reserve(100) as view:
            view[:] = body

    return operation


def _reserve_and_publish_late(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    first, second = _body(queue, 70), _body(queue, 100, 1)

    def operation() -> None:
        with queue.reserve(100) as view:
            view[:] = second
            queue.put(first)

    return operation


def _reserve_and_drop(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)

    def operation() -> None:
        try:
            with queue.reserve(100):
                raise ValueError
        except ValueError:
            pass

    return operation


def _get_new(queue: Queue, clock: Clock) -> Operation:
    _busy(queue, is_returned=False)
    return queue.get


def _get_returned(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    return queue.get


def _get_many_new(queue: Queue, clock: Clock) -> Operation:
    _busy(queue, is_returned=False)
    return lambda: queue.get_many(3)


def _get_many_returned(queue: Queue, clock: Clock) -> Operation:
    queue.nack(_busy(queue)[:2], delay=0)
    return lambda: queue.get_many(3)


def _get_and_sweep(queue: Queue, clock: Clock) -> Operation:
    """With leases run out, one waiting over, and a process dead with a lease and a loan."""
    _busy(queue)
    other = attach(queue.name, clock=clock)
    other.get()
    other.reserve(50).__enter__()
    row = participants(queue)[other._owner & 0xFFFF]
    row["pid"], row["started"] = NOBODY, 1
    clock.advance(VISIBILITY + 1)
    return queue.get


def _ack(queue: Queue, clock: Clock) -> Operation:
    return _busy(queue)[0].ack


def _ack_many(queue: Queue, clock: Clock) -> Operation:
    leased = _busy(queue)
    return lambda: queue.ack(leased)


def _nack_now(queue: Queue, clock: Clock) -> Operation:
    message = _busy(queue)[1]
    return lambda: message.nack(delay=0)


def _nack_later(queue: Queue, clock: Clock) -> Operation:
    message = _busy(queue)[1]
    return lambda: message.nack(delay=1)


def _nack_for_the_last_time(queue: Queue, clock: Clock) -> Operation:
    message = _busy(queue, is_returned=False)[1]
    for _ in range(2):
        message.nack(delay=0)
        message = queue.get()
    return lambda: message.nack(delay=0)


def _reject(queue: Queue, clock: Clock) -> Operation:
    return _busy(queue)[1].reject


def _extend(queue: Queue, clock: Clock) -> Operation:
    message = _busy(queue)[1]
    return lambda: message.extend(5)


def _attach(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    return lambda: attach(queue.name, clock=clock)


def _close(queue: Queue, clock: Clock) -> Operation:
    _busy(queue)
    attach(queue.name, clock=clock).close()  # what numpy does only once, it has then done
    return queue.close


CASES = {
    "put": Case(_put, 1),
    "put many": Case(_put_many, 1),
    "put large": Case(_put_large, 2, LARGE),
    "put, looking for room": Case(_put_looking_for_room, 2, every=5),
    "reserve": Case(_reserve, 2),
    "reserve, published late": Case(_reserve_and_publish_late, 3),
    "reserve, dropped": Case(_reserve_and_drop, 2),
    "get new": Case(_get_new, 1),
    "get returned": Case(_get_returned, 1),
    "get many new": Case(_get_many_new, 1),
    "get many returned": Case(_get_many_returned, 3),
    "get and sweep": Case(_get_and_sweep, 8, every=5),
    "ack": Case(_ack, 1),
    "ack many": Case(_ack_many, 1),
    "nack now": Case(_nack_now, 1),
    "nack later": Case(_nack_later, 1),
    "nack for the last time": Case(_nack_for_the_last_time, 1),
    "reject": Case(_reject, 1),
    "extend": Case(_extend, 1),
    "attach": Case(_attach, 1),
    "close": Case(_close, 4),
}
