"""Where a memory queue's ring has room: the gaps between unfinished records.

Records are laid at a frontier (`tail`) that only moves forward; the place of position p is
p modulo the ring's size. What is still needed when the frontier comes round again (a
message leased for long, one waiting to be retried, space lent out) is stepped over where it
lies: nothing is copied, views into it stay valid, and nobody waits for it.

A gap found once stays a gap until the frontier has passed it, whatever others do meanwhile:
finishing a message only makes more room, and everything new goes behind the frontier. So
gaps are worked out from copies, outside every lock, and kept by each producer for itself.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmq.layout import FREE, ROW

Gap = tuple[int, int]


def gaps(
    tail: int, ring_bytes: int, positions: NDArray[Any], sizes: NDArray[Any], unread: int
) -> list[Gap]:
    """The free stretches of [tail, tail + ring_bytes), as positions, in order.

    `positions` and `sizes` name the records and reservations still needed; `unread` is the
    position from which on everything up to the tail is needed, or the tail itself. No gap
    crosses the ring's end.
    """
    end = tail + ring_bytes
    # Each obstacle where the frontier would meet it. Signed: positions behind the tail are
    # negative here, and an unsigned difference would wrap at 2**64, not at the ring's size.
    ahead = (positions.astype(np.int64) - tail) % ring_bytes
    order = np.argsort(ahead, kind="stable")
    starts = [tail + int(offset) for offset in ahead[order]]
    lengths = [int(size) for size in sizes[order]]
    wrap = -(-(tail + 1) // ring_bytes) * ring_bytes
    blocks = [*zip(starts, lengths, strict=True), (wrap, 0)]
    if unread < tail:
        blocks.append((unread + ring_bytes, tail - unread))
    blocks.append((end, 0))
    blocks.sort()
    found = []
    free_from = tail
    for start, length in blocks:
        if start > free_from:
            found.append((free_from, min(start, end)))
        free_from = max(free_from, start + length)
    return found


def unfinished(rows: memoryview, used: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions and sizes of the records that rows still hold, from a copy of the rows."""
    table = np.frombuffer(rows, ROW, used)
    live = table[(table["tag"] & 0xFF) != FREE]
    return live["position"], live["bytes"]
