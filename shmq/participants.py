# cython: annotation_typing=False
"""Who is attached to a queue, and who of them died.

Each attached handle has a row with its process' pid and start time; leases and reservations
name the row and its incarnation. A process is alive only if /proc knows its pid with that
start time and it is no zombie, so neither pid reuse nor an unreaped child deceives.

What a death leaves: a row that stays ACTIVE until somebody's sweep has returned everything
the dead process held; only then is the row freed, so an owner never means two processes.
The holder of the queue's lock calls `join` and `leave`.
"""

from persist.prim import Memory
from shmq import layout as _layout
from shmq.undo import Undo

_WORDS = _layout.words(_layout.PARTICIPANT)
_PID = _layout.word(_layout.PARTICIPANT, "pid")
_STARTED = _layout.word(_layout.PARTICIPANT, "started")
_COUNT = _layout.PARTICIPANTS
_FREE = _layout.FREE
_ACTIVE = _layout.ACTIVE


class Liveness:
    """The door to /proc; tests replace `liveness`."""

    def started(self, pid: int) -> int:
        """When a process started, in ticks since boot; 0 if it is gone or a zombie."""
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                data = file.read(1024)
        except (FileNotFoundError, ProcessLookupError):
            return 0
        fields = data[data.rindex(b")") + 2 :].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


liveness = Liveness()


class Participants:
    """The participant table of one queue segment."""

    def __init__(self, memory: Memory, undo: Undo, participants_at: int) -> None:
        self._memory = memory
        self._undo = undo
        self._at = participants_at >> 3

    def join(self, pid: int, started: int) -> int:
        """Take a free row for this process; the owner number that names it, 0 if none is free."""
        memory = self._memory
        undo = self._undo
        for slot in range(_COUNT):
            at = self._at + slot * _WORDS
            tag = memory.load(at)
            if (tag & 0xFF) == _FREE:
                incarnation = (tag >> 8) + 1
                memory.store(at + _PID, pid)
                memory.store(at + _STARTED, started)
                undo.begin()
                undo.note(at)
                undo.arm()
                memory.store(at, (incarnation << 8) | _ACTIVE)
                undo.commit()
                return (incarnation << 16) | slot
        return 0

    def leave(self, owner: int) -> None:
        """Free the row of an owner that holds nothing any more."""
        memory = self._memory
        undo = self._undo
        at = self._at + (owner & 0xFFFF) % _COUNT * _WORDS
        if memory.load(at) != ((owner >> 16) << 8) | _ACTIVE:
            return
        undo.begin()
        undo.note(at)
        undo.arm()
        memory.store(at, ((owner >> 16) << 8) | _FREE)
        undo.commit()

    def attached(self) -> list[tuple[int, int, int]]:
        """(owner, pid, started) of every active row; needs no lock."""
        memory = self._memory
        found = []
        for slot in range(_COUNT):
            at = self._at + slot * _WORDS
            tag = memory.load(at)
            if (tag & 0xFF) == _ACTIVE:
                owner = ((tag >> 8) << 16) | slot
                pid, started = memory.load(at + _PID), memory.load(at + _STARTED)
                if memory.load(at) == tag:
                    found.append((owner, pid, started))
        return found

    def dead(self) -> list[int]:
        """The owners whose process is gone; a look at /proc for each.

        This process' own pid is no exception: a dead one may have had the same.
        """
        return [
            owner for owner, pid, started in self.attached() if liveness.started(pid) != started
        ]

    def alive(self) -> list[tuple[int, int]]:
        """(owner, pid) of the attached processes that live."""
        return [
            (owner, pid)
            for owner, pid, started in self.attached()
            if liveness.started(pid) == started
        ]
