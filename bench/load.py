"""How much of the machine others used meanwhile: what decides whether figures mean anything.

A load average would count the benchmark itself. This is the busy time of all cores, less the
time of this process and its children that have been waited for.
"""

import os
import time

BUSY = 0.1  # of the cores in others' use: beyond it ratios are not to be trusted


class Meter:
    """Counts from its making."""

    def __init__(self) -> None:
        self._start = _readings()

    def others(self) -> float:
        """The part of the cores that others used so far, 0 to 1."""
        elapsed, busy, own = (
            now - then for now, then in zip(_readings(), self._start, strict=True)
        )
        return min(1.0, max(0.0, (busy - own) / (elapsed * (os.cpu_count() or 1))))


def _readings() -> tuple[float, float, float]:
    """Seconds: by the clock, of all busy cores, of this process and its children."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, file.readline().split()[1:9])
    busy = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    own = os.times()
    return time.monotonic(), busy, sum(own[:4])
