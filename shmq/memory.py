"""Shared-memory segments: made, found, checked and removed.

A name is created exclusively, mode 0600, and everything about it is decided under a lock on
the object itself (`flock`, freed by the kernel): whoever holds that lock and finds no magic
knows that the creator died, removes what there is and starts again. The magic is stored
last. At every attach owner, mode, size, version, libc, boot and pid namespace are checked.

What a creator's death leaves: a name without a magic, and perhaps the group's segment and
semaphores; the next opener removes them. What a deleter's death leaves: the same, because
the magic goes first.

By rule: memory of another boot is void and replaced; memory of another layout is refused,
because another version's data may be in it.
"""

import errno
import fcntl
import mmap
import os
import secrets
import stat
import time
from typing import Any

import numpy as np
import posix_ipc

from persist.prim import MUTEX_BYTES, Memory, Mutex, crc32c
from shmq import names, signals
from shmq.errors import LayoutMismatch, QueueExists, QueueNotFound, SharedMemoryFull
from shmq.layout import (
    GROUP,
    MAGIC,
    OPS,
    QUEUE,
    SETTINGS_BYTES,
    VERSION,
    GroupPlan,
    QueuePlan,
    word,
)
from shmq.settings import Settings

OPEN_TIMEOUT = 10.0  # s that an opener waits for another one's creation to end
SEMAPHORES = ("items", "space")
DEFAULT_GROUP = "default"


class System:
    """The door to the kernel's shared-memory calls; tests replace `system`."""

    def open(self, name: str, *, create: bool) -> int:
        """A descriptor of the object; posix_ipc.ExistentialError as posix_ipc has it."""
        flags = posix_ipc.O_CREX if create else 0
        return int(posix_ipc.SharedMemory(name, flags, mode=0o600).fd)

    def unlink(self, name: str) -> None:
        """Remove the name, if it is there."""
        try:
            posix_ipc.unlink_shared_memory(name)
        except posix_ipc.ExistentialError:
            pass

    def allocate(self, fd: int, size: int) -> None:
        """Give the object its size, really allocated: a full tmpfs fails here, not later."""
        os.ftruncate(fd, size)
        os.posix_fallocate(fd, 0, size)

    def boot_id(self) -> tuple[int, int]:
        """This boot, as two words."""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            number = int(file.read().strip().replace("-", ""), 16)
        return number >> 64, number & (2**64 - 1)

    def pid_namespace(self) -> int:
        """The namespace of this process' pids: those of another one mean nothing here."""
        return os.stat("/proc/self/ns/pid").st_ino


system = System()


class Segments:
    """The two segments of an attached memory queue, and what they say about it."""

    def __init__(self, queue: mmap.mmap, group: mmap.mmap, settings: Settings) -> None:
        self.queue_map = queue
        self.group_map = group
        self.settings = settings
        self.queue_plan = QueuePlan(settings.ring_bytes, settings.index_entries)
        self.group_plan = GroupPlan(settings.rows)


def attach(name: str, given: dict[str, Any], *, create: bool) -> Segments:
    """Find the queue or make it; QueueNotFound if it is absent and not to be made."""
    settings = Settings.of(given)
    main = names.shared_object(name, "queue")
    deadline = time.monotonic() + OPEN_TIMEOUT
    while True:
        try:
            fd = system.open(main, create=False)
        except posix_ipc.ExistentialError:
            if not create:
                raise QueueNotFound(
                    f"there is no memory queue {name!r}; open it without create=False to make it"
                ) from None
            try:
                fd = system.open(main, create=True)
            except posix_ipc.ExistentialError:
                continue
        except posix_ipc.PermissionsError:
            raise QueueExists(_foreign(main)) from None
        try:
            _check_object(fd, main)
            found = _identity(fd, QUEUE)
            if found is None or not _is_of_this_boot(found):
                _lock(fd, name, deadline)
                if os.fstat(fd).st_nlink == 0:
                    continue  # removed while we waited: whatever there is now is another object
                found = _identity(fd, QUEUE)
                if found is None and os.fstat(fd).st_size == 0 and create:
                    _create(fd, name, settings)
                    found = _identity(fd, QUEUE)
                elif found is None or not _is_of_this_boot(found):
                    # A creator or deleter died here, or the machine was restarted.
                    _unlink_parts(name)
                    system.unlink(main)
                    continue
            assert found is not None
            return _map(fd, name, found, given)
        finally:
            _unlock_and_close(fd)


def delete(name: str) -> None:
    """Remove the queue's names, magic first; the caller has checked that nobody needs it."""
    main = names.shared_object(name, "queue")
    try:
        fd = system.open(main, create=False)
    except posix_ipc.ExistentialError:
        raise QueueNotFound(f"there is no memory queue {name!r}") from None
    try:
        _check_object(fd, main)
        _lock(fd, name, time.monotonic() + OPEN_TIMEOUT)
        if os.fstat(fd).st_nlink == 0:
            raise QueueNotFound(f"there is no memory queue {name!r}")
        if os.fstat(fd).st_size >= QUEUE.itemsize:
            Memory(mmap.mmap(fd, QUEUE.itemsize)).copy_in(0, bytes(8))
        _unlink_parts(name)
        system.unlink(main)
    finally:
        _unlock_and_close(fd)


def queues() -> list[str]:
    """The names of this user's memory queues."""
    found = []
    for file in os.listdir(names.SHM_DIRECTORY):
        name = names.queue_of(file)
        if name is not None:
            try:
                with open(f"{names.SHM_DIRECTORY}/{file}", "rb") as segment:
                    if segment.read(8) == MAGIC.to_bytes(8, "little"):
                        found.append(name)
            except FileNotFoundError:
                pass  # deleted since the directory was read
    return sorted(found)


def semaphore(name: str, which: str) -> str:
    """The POSIX name of one of the queue's semaphores."""
    return names.shared_object(name, which)


def _foreign(path: str) -> str:
    return (
        f"{names.SHM_DIRECTORY}{path} is not a queue of this user with mode 0600; "
        "it is not touched. Remove it or choose another name"
    )


def _check_object(fd: int, path: str) -> None:
    found = os.fstat(fd)
    if (
        not stat.S_ISREG(found.st_mode)
        or found.st_uid != os.geteuid()
        or found.st_mode & 0o077
        or found.st_nlink > 1
    ):
        raise QueueExists(_foreign(path))


def _lock(fd: int, name: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise QueueExists(
                    f"another process has been creating or deleting queue {name!r} for "
                    f"{OPEN_TIMEOUT:.0f} s; is it stopped?"
                ) from None
            time.sleep(0.001)


def _unlock_and_close(fd: int) -> None:
    # A mapping keeps a duplicate of the descriptor, and with it the lock, unless told.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _identity(fd: int, dtype: np.dtype[Any]) -> Any:
    """The segment's header, or None while it has no magic."""
    data = os.pread(fd, dtype.itemsize, 0)
    if len(data) < dtype.itemsize:
        return None
    head = np.frombuffer(data, dtype)[0]
    return head if int(head["magic"]) == MAGIC else None


def _is_of_this_boot(head: Any) -> bool:
    return (int(head["boot_high"]), int(head["boot_low"])) == system.boot_id()


def _create(fd: int, name: str, settings: Settings) -> None:
    """Lay out both segments and the semaphores; the lock on fd is held."""
    main = names.shared_object(name, "queue")
    plan = QueuePlan(settings.ring_bytes, settings.index_entries)
    try:
        _unlink_parts(name)
        _allocate(fd, plan.total_bytes, name)
        segment = mmap.mmap(fd, plan.total_bytes)
        head = np.zeros(1, QUEUE)[0]
        instance = secrets.randbits(64)
        _fill_identity(head, instance, plan.total_bytes)
        for field in ("ring_bytes", "index_entries", "ring_at", "index_at"):
            head[field] = getattr(plan, field)
        head["participants_at"] = plan.participants_at
        head["reservations_at"] = plan.reservations_at
        head["salt"] = secrets.randbits(64)
        blob = settings.to_json()
        assert len(blob) <= SETTINGS_BYTES
        head["settings_bytes"] = len(blob)
        head["settings_crc"] = crc32c(blob)
        head["settings"] = np.frombuffer(blob.ljust(SETTINGS_BYTES, b"\0"), "<u8")
        segment[: QUEUE.itemsize] = head.tobytes()
        memory = Memory(segment)
        _initialise(memory, word(QUEUE, "mutex"))
        _create_group(name, instance, settings)
        for which in SEMAPHORES:
            signals.create(semaphore(name, which))
        memory.copy_in(0, MAGIC.to_bytes(8, "little"))
    except BaseException:
        _unlink_parts(name)
        system.unlink(main)
        raise


def _create_group(name: str, instance: int, settings: Settings) -> None:
    path = names.shared_object(name, DEFAULT_GROUP)
    plan = GroupPlan(settings.rows)
    fd = system.open(path, create=True)
    try:
        _allocate(fd, plan.total_bytes, name)
        segment = mmap.mmap(fd, plan.total_bytes)
        head = np.zeros(1, GROUP)[0]
        _fill_identity(head, instance, plan.total_bytes)
        head["rows"], head["rows_at"] = plan.rows, plan.rows_at
        head["ops"], head["ops_at"] = OPS, plan.ops_at
        segment[: GROUP.itemsize] = head.tobytes()
        memory = Memory(segment)
        _initialise(memory, word(GROUP, "mutex"))
        memory.copy_in(0, MAGIC.to_bytes(8, "little"))
    finally:
        os.close(fd)


def _fill_identity(head: Any, instance: int, total_bytes: int) -> None:
    """Everything of the identity but the magic."""
    head["version"] = VERSION
    head["instance"] = instance
    head["boot_high"], head["boot_low"] = system.boot_id()
    head["pid_namespace"] = system.pid_namespace()
    head["total_bytes"] = total_bytes
    head["mutex_bytes"] = MUTEX_BYTES


def _initialise(memory: Memory, mutex_at: int) -> None:
    rc = Mutex(memory, mutex_at).initialise()
    if rc:
        raise OSError(rc, f"pthread_mutex_init: {os.strerror(rc)}")


def _allocate(fd: int, size: int, name: str) -> None:
    try:
        system.allocate(fd, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT):
            raise
        free = os.statvfs(names.SHM_DIRECTORY)
        raise SharedMemoryFull(
            f"queue {name!r} needs {size:,} bytes of {names.SHM_DIRECTORY}, which has "
            f"{free.f_bavail * free.f_frsize:,} free; delete queues, choose a smaller "
            "ring_bytes, or enlarge it (containers: --shm-size)"
        ) from error


def _map(fd: int, name: str, head: Any, given: dict[str, Any]) -> Segments:
    """Map what was found, every number in it checked first."""
    _check_identity(fd, head, f"queue {name!r}")
    size = int(head["settings_bytes"])
    blob = head["settings"].tobytes()[: min(size, SETTINGS_BYTES)]
    try:
        if size > SETTINGS_BYTES or crc32c(blob) != int(head["settings_crc"]):
            raise ValueError("checksum")
        settings = Settings.from_json(blob)
    except (ValueError, TypeError) as error:
        raise LayoutMismatch(_damaged(name, "its settings are unreadable")) from error
    plan = QueuePlan(settings.ring_bytes, settings.index_entries)
    for field in ("ring_bytes", "ring_at", "index_entries", "index_at", "participants_at",
                  "reservations_at", "total_bytes"):  # fmt: skip
        if int(head[field]) != getattr(plan, field):
            raise LayoutMismatch(_damaged(name, f"{field} contradicts its settings"))
    settings.check_same(given, name)
    queue = mmap.mmap(fd, plan.total_bytes)
    return Segments(queue, _map_group(name, int(head["instance"]), settings), settings)


def _map_group(name: str, instance: int, settings: Settings) -> mmap.mmap:
    path = names.shared_object(name, DEFAULT_GROUP)
    plan = GroupPlan(settings.rows)
    try:
        fd = system.open(path, create=False)
    except posix_ipc.ExistentialError:
        raise LayoutMismatch(_damaged(name, f"{path} is missing")) from None
    try:
        _check_object(fd, path)
        head = _identity(fd, GROUP)
        if head is None or int(head["instance"]) != instance:
            raise LayoutMismatch(_damaged(name, f"{path} is not its group"))
        _check_identity(fd, head, f"group {DEFAULT_GROUP!r} of queue {name!r}")
        expected = (plan.rows, plan.rows_at, OPS, plan.ops_at, plan.total_bytes)
        stored = tuple(int(head[f]) for f in ("rows", "rows_at", "ops", "ops_at", "total_bytes"))
        if stored != expected:
            raise LayoutMismatch(_damaged(name, f"{path} contradicts the settings"))
        return mmap.mmap(fd, plan.total_bytes)
    finally:
        os.close(fd)


def _check_identity(fd: int, head: Any, what: str) -> None:
    if int(head["version"]) != VERSION:
        raise LayoutMismatch(
            f"{what} has layout {int(head['version'])}, this shmq has {VERSION}; "
            "delete it with the version that made it"
        )
    if int(head["mutex_bytes"]) != MUTEX_BYTES:
        raise LayoutMismatch(f"{what} was made with another C library; both sides need the same")
    if int(head["pid_namespace"]) != system.pid_namespace():
        raise LayoutMismatch(
            f"{what} was made in another pid namespace; its processes cannot be watched from "
            "here. Run both sides in one container"
        )
    if int(head["total_bytes"]) != os.fstat(fd).st_size:
        raise LayoutMismatch(f"{what} has {os.fstat(fd).st_size} bytes, its header says otherwise")


def _damaged(name: str, how: str) -> str:
    return (
        f"queue {name!r} is damaged: {how}. Remove it with shmq.delete({name!r}, "
        "durable=False, force=True)"
    )


def _unlink_parts(name: str) -> None:
    """Everything but the main segment."""
    system.unlink(names.shared_object(name, DEFAULT_GROUP))
    for which in SEMAPHORES:
        signals.unlink(semaphore(name, which))
