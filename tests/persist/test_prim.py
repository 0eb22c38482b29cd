"""The primitives, the same on both builds: bounds, copies, checksums, traces, lifetimes."""

import gc
import mmap
from typing import Any

import pytest

from persist.prim import MUTEX_BYTES, Memory, Mutex, Snapshot, crc32c, seed


def test_every_access_is_checked_at_both_ends() -> None:
    memory = Memory(bytearray(64))
    memory.copy_in(56, b"12345678")
    for at, count in ((57, 8), (64, 1), (2**63, 8), (0, 65), (2**64 - 8, 16)):
        with pytest.raises((IndexError, OverflowError)):
            memory.copy_out(at, count)
        with pytest.raises((IndexError, OverflowError)):
            memory.view(at, count)
    with pytest.raises(IndexError):
        memory.copy_in(57, b"12345678")
    assert memory.copy_out(56, 8) == b"12345678"
    assert memory.copy_out(64, 0) == b""


def test_a_view_is_the_memory_itself() -> None:
    buffer = bytearray(32)
    memory = Memory(buffer)
    view = memory.view(8, 4)
    view[:] = b"abcd"
    assert bytes(buffer[8:12]) == b"abcd"
    view.release()


def test_copies_of_every_kind_and_length_arrive() -> None:
    size = 300_000  # beyond what is copied with the interpreter's lock held
    memory = Memory(mmap.mmap(-1, size))
    data = bytes(range(256)) * (size // 256)
    for source in (data, bytearray(data), memoryview(data)):
        memory.copy_in(0, bytes(size))
        memory.copy_in(0, source)
        assert memory.copy_out(0, len(data)) == data


def test_a_disowned_memory_refuses_everything() -> None:
    memory = Memory(bytearray(64))
    memory.disown()
    with pytest.raises(IndexError):
        memory.copy_out(0, 8)
    with pytest.raises(IndexError):
        memory.copy_in(0, b"x")


def test_a_trace_records_copies_in_order() -> None:
    memory = Memory(bytearray(64))
    trace: list[Any] = []
    memory.trace = trace
    memory.copy_in(8, b"abc")
    memory.copy_in(16, bytearray(b"de"))
    memory.trace = None
    memory.copy_in(24, b"not this")
    assert trace == [(8, b"abc"), (16, b"de")]


def test_crc32c_is_castagnoli_and_continues() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert crc32c(b"", 17) == 17
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_a_seed_differs_with_salt_and_position() -> None:
    seeds = {seed(salt, lap * 4096 + 64) for salt in range(8) for lap in range(1000)}
    assert len(seeds) == 8000


def test_a_mutex_or_snapshot_outside_is_refused() -> None:
    memory = Memory(bytearray(64))
    Mutex(memory, 0)
    with pytest.raises(IndexError):
        Mutex(memory, (64 - MUTEX_BYTES) // 8 + 1)
    Snapshot(memory, 0, 4, 4)
    with pytest.raises(IndexError):
        Snapshot(memory, 0, 5, 4)
    with pytest.raises(IndexError):
        Snapshot(memory, 5, 0, 4)


def test_memory_in_a_cycle_lets_go_of_its_buffer_in_order(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for _ in range(3):
        cycle: list[Any] = [Memory(bytearray(64)), Memory(mmap.mmap(-1, 4096))]
        cycle.append(cycle)
        del cycle
        gc.collect()
    assert capfd.readouterr().err == ""
