"""A queue for many processes on one host, in shared memory, with no server to run.

    import shmq

    q = shmq.open("orders", durable=False)
    q.put(b"hello")
    with q.get() as m:
        print(m.body)

`put` and `get` work from any process that opens the same name. A message is leased by
`get` and stays in the queue until it is acked; if its consumer dies, at any instant, it is
delivered again. Nothing a killed process leaves behind blocks or corrupts the others.
"""

from typing import Any

from shmq import memory as _memory
from shmq import queue as _queue
from shmq.errors import (
    BadName,
    LayoutMismatch,
    MessageTooLarge,
    NotDurable,
    QueueBusy,
    QueueClosed,
    QueueEmpty,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    ReentrantCall,
    SettingsConflict,
    SharedMemoryFull,
    ShmqError,
    StaleReceipt,
)
from shmq.message import Message
from shmq.names import check as _check_name
from shmq.producer import Reservation
from shmq.queue import Queue
from shmq.settings import Settings
from shmq.stats import Stats
from shmq.version import __version__ as __version__

__all__ = [
    # .errors
    "BadName",
    "LayoutMismatch",
    "MessageTooLarge",
    "NotDurable",
    "QueueBusy",
    "QueueClosed",
    "QueueEmpty",
    "QueueExists",
    "QueueFull",
    "QueueInUse",
    "QueueNotFound",
    "ReentrantCall",
    "SettingsConflict",
    "SharedMemoryFull",
    "ShmqError",
    "StaleReceipt",
    # .message
    "Message",
    # .producer
    "Reservation",
    # .queue
    "Queue",
    # .settings
    "Settings",
    # .stats
    "Stats",
    # here
    "delete",
    "open",
    "queues",
]


def open(name: str, *, durable: bool = True, create: bool = True, **settings: Any) -> Queue:
    """Attach to the queue of this name, or make it.

    durable=False is a queue in memory: it outlives every process, not a reboot. Settings
    (see `Settings`) are given when it is made; a different one later is SettingsConflict.
    """
    _check_name(name)
    _memory_only(durable)
    return _queue.attach(name, settings, create=create)


def delete(name: str, *, durable: bool = True, force: bool = False) -> None:
    """Remove a queue and everything in it; QueueInUse while others live in it, unless forced.

    With force, processes still attached get QueueNotFound from their next call.
    """
    _check_name(name)
    _memory_only(durable)
    _queue.delete(name, force=force)


def queues(*, durable: bool = True) -> list[str]:
    """The names of this user's queues."""
    _memory_only(durable)
    return _memory.queues()


def _memory_only(durable: bool) -> None:
    if durable:
        raise NotDurable("durable queues are still to come; pass durable=False")
