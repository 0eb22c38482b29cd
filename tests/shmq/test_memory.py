"""Segments: made once, checked at every attach, refused or replaced by rule, removed whole."""

import errno
import fcntl
import mmap
import os
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import posix_ipc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shmq
from shmq import layout, memory, names

SMALL: dict[str, Any] = {"ring_bytes": 16_384, "max_message": 1024, "rows": 8, "index_entries": 8}


def files(name: str) -> list[Path]:
    return sorted(file for file in Path(names.SHM_DIRECTORY).iterdir() if f"~{name}~" in file.name)


def main_file(name: str) -> Path:
    return Path(names.SHM_DIRECTORY + names.shared_object(name, "queue"))


def poke(name: str, field: str, value: int) -> None:
    """Overwrite a word of the queue segment's header."""
    at = layout.word(layout.QUEUE, field) * 8
    with open(main_file(name), "r+b") as file:
        file.seek(at)
        file.write(value.to_bytes(8, "little"))


def test_a_queue_is_four_private_files_really_allocated(name: str) -> None:
    with shmq.open(name, durable=False, **SMALL) as q:
        found = files(name)
        assert len(found) == 4
        for file in found:
            status = file.stat()
            assert stat.S_IMODE(status.st_mode) == 0o600
            assert status.st_blocks * 512 >= status.st_size
        assert name in shmq.queues(durable=False)
        assert q.settings.rows == 8
    assert files(name), "a queue outlives its handles"
    shmq.delete(name, durable=False)
    assert not files(name)
    assert name not in shmq.queues(durable=False)


def test_messages_outlive_every_handle(name: str) -> None:
    with shmq.open(name, durable=False, **SMALL) as q:
        q.put(b"still here")
    with shmq.open(name, durable=False, create=False) as q, q.get(timeout=0) as m:
        assert m.body == b"still here"
    shmq.delete(name, durable=False)


def test_an_absent_queue_is_not_made_unasked(name: str) -> None:
    with pytest.raises(shmq.QueueNotFound, match=name):
        shmq.open(name, durable=False, create=False)
    with pytest.raises(shmq.QueueNotFound, match=name):
        shmq.delete(name, durable=False)


def test_a_queue_in_use_is_not_deleted_unless_forced(name: str) -> None:
    q = shmq.open(name, durable=False, **SMALL)
    with pytest.raises(shmq.QueueInUse, match=str(os.getpid())):
        shmq.delete(name, durable=False)
    q.put(b"x")
    shmq.delete(name, durable=False, force=True)
    with pytest.raises(shmq.QueueNotFound):
        q.put(b"y")
    with pytest.raises(shmq.QueueNotFound):
        q.get(timeout=0)
    q.close()


def test_a_full_dev_shm_is_a_named_error_and_leaves_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(memory.System):
        """A tmpfs with room for a number of allocations."""

        def __init__(self, room: int) -> None:
            self.room = room

        def allocate(self, fd: int, size: int) -> None:
            self.room -= 1
            if self.room < 0:
                raise OSError(errno.ENOSPC, "no space")
            super().allocate(fd, size)

    for room in (0, 1):
        monkeypatch.setattr(memory, "system", Full(room))
        with pytest.raises(shmq.SharedMemoryFull, match="shm-size"):
            shmq.open(name, durable=False, **SMALL)
        assert not files(name)
    monkeypatch.undo()
    shmq.open(name, durable=False, **SMALL).close()
    shmq.delete(name, durable=False)


def test_more_than_there_is_fails_at_creation_not_later(name: str) -> None:
    free = os.statvfs(names.SHM_DIRECTORY)
    too_much = (free.f_bavail * free.f_frsize // 4096 + 4096) * 4096
    with pytest.raises(shmq.SharedMemoryFull):
        shmq.open(name, durable=False, ring_bytes=too_much)
    assert not files(name)


def test_a_name_taken_by_something_else_is_refused_and_left_alone(name: str) -> None:
    path = main_file(name)
    path.write_bytes(b"not ours")
    path.chmod(0o644)
    with pytest.raises(shmq.QueueExists, match="not touched"):
        shmq.open(name, durable=False, **SMALL)
    assert path.read_bytes() == b"not ours"
    path.unlink()


def test_what_a_dead_creator_left_is_replaced(name: str) -> None:
    for size in (0, 100, layout.QUEUE.itemsize, 1 << 16):
        path = main_file(name)
        path.touch(0o600)
        os.truncate(path, size)
        posix_ipc.Semaphore(
            names.shared_object(name, "items"), posix_ipc.O_CREX, mode=0o600
        ).close()
        with pytest.raises(shmq.QueueNotFound):
            shmq.open(name, durable=False, create=False)
        path.touch(0o600)
        with shmq.open(name, durable=False, **SMALL) as q:
            q.put(b"x")
        shmq.delete(name, durable=False)
        assert not files(name)


def test_memory_of_another_boot_is_void(name: str) -> None:
    with shmq.open(name, durable=False, **SMALL) as q:
        q.put(b"from before the reboot")
    poke(name, "boot_low", 12345)
    with shmq.open(name, durable=False, **SMALL) as q:
        assert q.stats().puts == 0
    shmq.delete(name, durable=False)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("version", 99, "layout 99"),
        ("mutex_bytes", 24, "C library"),
        ("pid_namespace", 1, "pid namespace"),
        ("total_bytes", 4096, "bytes"),
        ("ring_bytes", 2**40, "ring_bytes"),
        ("index_at", 8, "index_at"),
        ("settings_crc", 1, "settings"),
        ("settings_bytes", 2**63, "settings"),
        ("instance", 7, "not its group"),
    ],
)
def test_memory_of_another_layout_is_refused(name: str, field: str, value: int, says: str) -> None:
    shmq.open(name, durable=False, **SMALL).close()
    poke(name, field, value)
    with pytest.raises(shmq.LayoutMismatch, match=says):
        shmq.open(name, durable=False)
    shmq.delete(name, durable=False, force=True)
    assert not files(name)


def test_a_group_segment_that_is_gone_is_told(name: str) -> None:
    shmq.open(name, durable=False, **SMALL).close()
    os.unlink(names.SHM_DIRECTORY + names.shared_object(name, "default"))
    with pytest.raises(shmq.LayoutMismatch, match="missing"):
        shmq.open(name, durable=False)
    shmq.delete(name, durable=False, force=True)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_garbled_header_is_refused_or_harmless(name: str, data: st.DataObject) -> None:
    """Any bytes in the constant part: a named error, or a queue that works."""
    shmq.open(name, durable=False, **SMALL).close()
    end = layout.word(layout.QUEUE, "mutex") * 8
    at = data.draw(st.integers(0, end - 1))
    junk = data.draw(st.binary(min_size=1, max_size=16))[: end - at]
    with open(main_file(name), "r+b") as file:
        file.seek(at)
        file.write(junk)
    try:
        with shmq.open(name, durable=False) as q:
            q.put(b"x", timeout=0)
            assert q.get(timeout=0).body == b"x"
    except shmq.ShmqError:
        pass
    shmq.delete(name, durable=False, force=True)
    assert not files(name)


def test_openers_wait_for_a_creation_under_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "OPEN_TIMEOUT", 0.2)
    path = main_file(name)
    path.touch(0o600)
    with open(path, "r+b") as creator:
        fcntl.flock(creator, fcntl.LOCK_EX)
        with pytest.raises(shmq.QueueExists, match="creating or deleting"):
            shmq.open(name, durable=False, **SMALL)
    path.unlink()


def test_many_openers_at_once_find_one_queue(name: str) -> None:
    opened: list[shmq.Queue] = []
    threads = [
        threading.Thread(target=lambda: opened.append(shmq.open(name, durable=False, **SMALL)))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 16
    for n, q in enumerate(opened):
        q.put(b"%d" % n, timeout=5) if n < 8 else None
    assert opened[0].stats().puts == 8
    for q in opened:
        q.close()
    shmq.delete(name, durable=False)


def test_dropped_handles_leave_no_descriptors_and_no_participants(name: str) -> None:
    first = shmq.open(name, durable=False, **SMALL)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(600):
        shmq.open(name, durable=False).close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert first.stats().attached == 1
    first.close()
    shmq.delete(name, durable=False)


def test_the_whole_of_a_queue_can_be_read_as_declared(name: str) -> None:
    """The dtypes describe the real bytes: what the code stored is where they say."""
    with shmq.open(name, durable=False, **SMALL) as q:
        q.put(b"abc")
        with open(main_file(name), "rb") as file:
            raw = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        head = np.frombuffer(raw, layout.QUEUE, 1)[0]
        entry = np.frombuffer(raw, layout.ENTRY, 1, int(head["index_at"]))[0]
        assert int(head["published"]) == 1
        assert int(head["magic"]) == layout.MAGIC
        assert (int(entry["seq"]), int(entry["position"])) == (0, 0)
        assert bytes(raw[int(head["ring_at"]) + 40 :][:3]) == b"abc"
    shmq.delete(name, durable=False)
