"""Everything that processes do to a queue, one operation each, on the tiny queue of world.py.

None waits: the clock stands still but where an operation moves it. An error that the queue
is documented to raise (full, empty, stale) is part of the operation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shmq import Message, Queue, QueueEmpty, QueueFull, StaleReceipt
from tests.crash.world import World, body_of

SHORT, WIDE, LARGE = 100, 2500, 5000  # LARGE is beyond what put copies under the lock
VISIBILITY = 30.0

SETTINGS = {
    # Nothing large fits; the ring is short, so that its end comes often.
    "short": {
        "ring_bytes": 16384, "max_message": 3000, "index_entries": 8, "rows": 6,
        "max_deliveries": 2, "visibility": VISIBILITY, "backoff": (0.0, 1.0, 0.0),
    },
    "large": {
        "ring_bytes": 36864, "max_message": 8192, "index_entries": 8, "rows": 6,
        "max_deliveries": 3, "visibility": VISIBILITY, "backoff": (4.0, 2.0, 60.0),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One thing that can be done, whether it can be done now, and how often it is."""

    name: str
    run: Callable[[World], None]
    applies: Callable[[World], bool] = lambda world: True
    weight: int = 2


class _Dropped(Exception):
    """Escapes from a reservation on purpose."""


# Putting


def _put(world: World, size: int, timeout: float = 0) -> None:
    try:
        world.mine.put(body_of(world.next_seq(), size), timeout=timeout)
    except QueueFull:
        pass


def _put_many(world: World) -> None:
    first = world.next_seq()
    sizes = (40, 700, 0)
    try:
        world.mine.put_many([body_of(first + n, size) for n, size in enumerate(sizes)], timeout=0)
    except QueueFull:
        pass


def _reserve(world: World, behind: int, is_dropped: bool) -> None:
    """Reserve, put `behind` more messages behind it meanwhile, then publish or drop it."""
    try:
        with world.mine.reserve(300, timeout=0) as view:
            for _ in range(behind):
                world.mine.put(body_of(world.next_seq(), SHORT), timeout=0)
            if len(world.picture().unread) == world.mine.settings.index_entries:
                raise _Dropped  # publishing would wait for an entry
            world.fill(world.mine, view, body_of(world.next_seq(), 300))
            if is_dropped:
                raise _Dropped
    except (QueueFull, _Dropped):
        pass


# Getting


def _get(world: World, handle: Queue, held: list[Message], limit: int, timeout: float = 0) -> None:
    try:
        if limit == 1:
            held.append(handle.get(timeout=timeout))
        else:
            held.extend(handle.get_many(limit, timeout=timeout))
    except QueueEmpty:
        pass


def _get_mine(world: World, limit: int = 1, after: float = 0, timeout: float = 0) -> None:
    world.advance(after)
    _get(world, world.mine, world.held, limit, timeout)


# Settling


def _settle(world: World, how: Callable[[Queue, Message], None], which: int = 0) -> None:
    message = world.held.pop(which)
    try:
        how(world.mine, message)
    except StaleReceipt:
        pass
    world.settled = message


def _ack_all(world: World) -> None:
    """All of them, the first one twice, and one that was settled before."""
    messages = [*world.held, world.held[0]]
    if world.settled is not None:
        messages.insert(1, world.settled)
    try:
        world.mine.ack(messages)
    except StaleReceipt:
        pass
    world.settled = messages[-1]
    world.held.clear()


def _ack_settled(world: World) -> None:
    assert world.settled is not None
    try:
        world.mine.ack(world.settled)
    except StaleReceipt:
        return
    raise AssertionError("a receipt was good twice")


def _extend(world: World) -> None:
    try:
        world.mine.extend(world.held[0], 60)
    except StaleReceipt:
        pass


# The other process


def _other_gets(world: World, limit: int) -> None:
    with world.as_other():
        _get(world, world.other, world.held_by_other, limit)


def _other_acks(world: World) -> None:
    with world.as_other():
        try:
            world.other.ack(world.held_by_other.pop())
        except StaleReceipt:
            pass


def _other_lends(world: World) -> None:
    """It reserves space, and is never heard of again."""
    try:
        world.other.reserve(200, timeout=0).__enter__()
    except QueueFull:
        pass


def _other_closes(world: World) -> None:
    with world.as_other():
        world.other.close()
    world.held_by_other.clear()


def _other_dies(world: World) -> None:
    world.is_other_dead = True
    world.held_by_other.clear()
    _get_mine(world, after=1)


def _is_other_there(world: World) -> bool:
    return world.other_owner != 0 and not world.is_other_dead


def _has_other_space(world: World) -> bool:
    return any(slot.owner == world.other_owner for slot in world.picture().slots)


def _holds(world: World) -> bool:
    return bool(world.held)


OPERATIONS = [
    Operation("put", lambda world: _put(world, SHORT)),
    Operation("put wide, or wait in vain", lambda world: _put(world, WIDE, timeout=0.02), weight=6),
    Operation(
        "put large",
        lambda world: _put(world, LARGE),
        lambda world: world.mine.settings.max_message >= LARGE,
    ),
    Operation("put_many", _put_many),
    Operation("reserve", lambda world: _reserve(world, 0, False)),
    Operation("reserve, published out of order", lambda world: _reserve(world, 1, False)),
    Operation("reserve, dropped", lambda world: _reserve(world, 0, True)),
    Operation("reserve, dropped with one behind", lambda world: _reserve(world, 1, True)),
    Operation("get", _get_mine),
    Operation("get_many", lambda world: _get_mine(world, limit=3), weight=5),
    Operation("get, or wait in vain", lambda world: _get_mine(world, timeout=0.3)),
    Operation("ack", lambda world: _settle(world, Queue.ack), _holds),
    Operation("ack the last", lambda world: _settle(world, Queue.ack, -1), _holds, weight=5),
    Operation("ack all", _ack_all, _holds, weight=5),
    Operation("ack again", _ack_settled, lambda world: world.settled is not None),
    Operation(
        "nack", lambda world: _settle(world, lambda queue, m: queue.nack(m, delay=0)), _holds
    ),
    Operation(
        "nack with a delay",
        lambda world: _settle(world, lambda queue, m: queue.nack(m, delay=5)),
        _holds,
    ),
    Operation(
        "nack with backoff", lambda world: _settle(world, lambda queue, m: queue.nack(m)), _holds
    ),
    Operation("reject", lambda world: _settle(world, Queue.reject), _holds, weight=1),
    Operation("extend", _extend, _holds),
    Operation("delays end, get", lambda world: _get_mine(world, after=6)),
    Operation("leases end, get", lambda world: _get_mine(world, after=VISIBILITY + 1), weight=1),
    Operation("the other opens", World.open_other, lambda world: world.other_owner == 0),
    Operation("the other gets", lambda world: _other_gets(world, 1), _is_other_there),
    Operation("the other gets many", lambda world: _other_gets(world, 3), _is_other_there),
    Operation("the other acks", _other_acks, lambda world: bool(world.held_by_other)),
    Operation(
        "the other lends",
        _other_lends,
        lambda world: _is_other_there(world) and not _has_other_space(world),
    ),
    Operation(
        "the other closes",
        _other_closes,
        lambda world: _is_other_there(world) and not _has_other_space(world),
    ),
    Operation("the other dies, get", _other_dies, _is_other_there),
]

BY_NAME = {operation.name: operation for operation in OPERATIONS}

# Moments to start from, each by the way there.
_LAP = ["put wide, or wait in vain", "get", "ack the last"]
STARTS = {
    "empty": [],
    "one of each": [
        "put_many", "put", "put", "get_many", "reject", "nack", "nack with a delay", "get",
    ],
    "several ready, all rows used": [
        "put_many", "put_many", "get_many", "get_many", "ack", "nack", "nack", "nack", "put",
    ],
    "the other holds leases": [
        "the other opens", "put_many", "put", "get", "the other gets many", "ack",
    ],
    "the other holds leases and space": [
        "the other opens", "put_many", "put", "get", "the other gets many", "the other lends",
        "put", "ack",
    ],
    "second lap round a long lease": ["put", "get", *_LAP * 16, "put", "put"],
    "second lap round lent space": [
        "the other opens", "the other lends", *_LAP * 15, "reserve, published out of order",
    ],
    "full": ["put", "get", *["put wide, or wait in vain"] * 9],
    "sleepers on both sides": [
        *["put wide, or wait in vain"] * 8, "get_many", "get_many", "ack all",
        "get, or wait in vain", "get, or wait in vain",
    ],
}  # fmt: skip
