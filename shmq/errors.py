"""Everything shmq raises on purpose.

ShmqError
├── BadName            a name outside the allowed alphabet
├── QueueNotFound      no such queue, or it was deleted under this handle
├── QueueExists        the name is taken by something that is not a usable queue
├── QueueInUse         delete() of a queue that living processes are attached to
├── QueueClosed        this handle was closed
├── QueueFull          also queue.Full
├── QueueEmpty         also queue.Empty
├── MessageTooLarge    larger than the queue can ever take
├── StaleReceipt       the lease was lost before it was settled
├── SettingsConflict   opened with settings other than those it was made with
├── NotDurable         asks of a memory queue what only a durable one has
├── LayoutMismatch     shared memory of another version, libc or pid namespace
├── SharedMemoryFull   /dev/shm has no room for the queue
├── QueueBusy          a living process has held the lock for too long
└── ReentrantCall      called from a signal handler or destructor inside another call
"""

import queue


class ShmqError(Exception):
    """The base of every error of `shmq`."""


class BadName(ShmqError, ValueError):
    """Raised when a queue's name could not be a safe file name."""


class QueueNotFound(ShmqError):
    """Raised when there is no such queue, or it was deleted while in use."""


class QueueExists(ShmqError):
    """Raised when the name in /dev/shm belongs to something that is not a queue of ours."""


class QueueInUse(ShmqError):
    """Raised by delete() while living processes are attached."""


class QueueClosed(ShmqError):
    """Raised when a closed handle is used."""


class QueueFull(ShmqError, queue.Full):
    """Raised when there was no room within the timeout."""


class QueueEmpty(ShmqError, queue.Empty):
    """Raised when there was nothing to get within the timeout."""


class MessageTooLarge(ShmqError, ValueError):
    """Raised at once for a message or batch that could never fit."""


class StaleReceipt(ShmqError):
    """Raised when a lease had run out, or was settled before; `receipts` names them."""

    def __init__(self, message: str, receipts: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.receipts = receipts


class SettingsConflict(ShmqError, ValueError):
    """Raised when an existing queue is opened with a different explicit setting."""


class NotDurable(ShmqError):
    """Raised for what only a durable queue has."""


class LayoutMismatch(ShmqError):
    """Raised when shared memory was laid out by something this code cannot share with."""


class SharedMemoryFull(ShmqError):
    """Raised when /dev/shm has no room left."""


class QueueBusy(ShmqError):
    """Raised when a living process has held a lock for longer than any operation takes."""


class ReentrantCall(ShmqError, RuntimeError):
    """Raised when a signal handler or destructor calls into the queue it interrupted."""
