"""Gaps: never over anything needed, and nothing free is missed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shmq.space import gaps

RING = 60  # small enough to check cell by cell; no power of two, so no modulo comes for free


@st.composite
def rings(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], int]:
    """A tail, non-overlapping records of earlier laps, and where the unread part starts."""
    tail = draw(st.integers(RING, 50 * RING))
    unread_cells = draw(st.integers(0, RING))
    records = []
    cell = 0
    while cell < RING - unread_cells:
        size = draw(st.integers(1, 9))
        if draw(st.booleans()) and cell + size <= RING - unread_cells:
            position = tail + cell  # where the frontier will meet it; it lies laps earlier
            if position // RING == (position + size - 1) // RING:
                lap = draw(st.integers(1, position // RING)) if position >= RING else 0
                records.append((position - lap * RING, size))
        cell += size
    return tail, records, tail - unread_cells


@given(rings())
def test_gaps_are_exactly_what_nothing_needs(case: tuple[int, list[tuple[int, int]], int]) -> None:
    tail, records, unread = case
    positions = np.array([position for position, _ in records], np.uint64)
    sizes = np.array([size for _, size in records], np.uint64)
    found = gaps(tail, RING, positions, sizes, unread)
    needed = {
        cell % RING for position, size in records for cell in range(position, position + size)
    }
    needed |= {cell % RING for cell in range(unread, tail)}
    offered = [cell for start, end in found for cell in range(start, end)]
    assert all(tail <= cell < tail + RING for cell in offered)
    assert offered == sorted(set(offered))
    assert {cell % RING for cell in offered} == set(range(RING)) - needed
    for start, end in found:
        assert start < end
        assert start // RING == (end - 1) // RING, "a gap crosses the ring's end"
