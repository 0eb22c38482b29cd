# cython: annotation_typing=False
"""The door to time: monotonic for leases, real for humans. Tests freeze and move it."""

from persist.prim import monotonic_ns, realtime_ns

SECOND = 1_000_000_000


class Clock:
    """Nanoseconds now; frozen, it stands still until `advance` moves it."""

    __slots__ = ("_frozen", "_monotonic", "_real")

    def __init__(self) -> None:
        self._frozen = False
        self._monotonic = 0
        self._real = 0

    def monotonic(self) -> int:
        """CLOCK_MONOTONIC: the same for every process of one boot."""
        return self._monotonic if self._frozen else monotonic_ns()

    def real(self) -> int:
        """CLOCK_REALTIME, ns since the epoch."""
        return self._real if self._frozen else realtime_ns()

    def freeze(self) -> None:
        """Stand still at the present instant."""
        self._monotonic = monotonic_ns()
        self._real = realtime_ns()
        self._frozen = True

    def advance(self, seconds: float) -> None:
        """Move a frozen clock."""
        self._monotonic += int(seconds * SECOND)
        self._real += int(seconds * SECOND)
