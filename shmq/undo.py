# cython: annotation_typing=False
"""The undo log of one segment: all of a transaction's stores, or none.

    begin()             forget the last transaction, save the control line
    note(index) ...     log the old value of every other control word that will change
    arm()               one store; from here on a death rolls back
    memory.store(...)   the changes
    commit()            one store; from here on they stand

What a death leaves: before `arm`, an unarmed log and unchanged words. Between `arm` and
`commit`, a count that is not 0: the next holder of the lock puts the line and every noted word
back and clears the count; dying in there repeats it. A transaction may name a word
that commits it by itself (`published`, which others read without the lock): if that word
has the intended value the changes stand, and only the count is cleared.

An exception inside a transaction is treated exactly like a death: whoever takes the lock
next rolls back. The lock's holder alone calls this.
"""

from persist.prim import Memory, Snapshot
from shmq import layout as _layout
from shmq.errors import ShmqError

_COMMIT_INDEX = _layout.word(_layout.QUEUE, "undo_commit_index") - _layout.word(
    _layout.QUEUE, "undo_count"
)
_COMMIT_VALUE = _layout.word(_layout.QUEUE, "undo_commit_value") - _layout.word(
    _layout.QUEUE, "undo_count"
)
_RECOVERIES = _layout.word(_layout.QUEUE, "recoveries") - _layout.word(_layout.QUEUE, "undo_count")
_LINE = _layout.word(_layout.QUEUE, "undo_line") - _layout.word(_layout.QUEUE, "undo_count")
_ENTRIES = _layout.word(_layout.QUEUE, "undo") - _layout.word(_layout.QUEUE, "undo_count")
_LINE_WORDS = _layout.LINE_WORDS
_CAPACITY = _layout.UNDO_ENTRIES
_AFTER = _ENTRIES + 2 * _CAPACITY


class DamagedLog(ShmqError):
    """What the segment says makes no sense: its derived words must be rebuilt."""


class Undo:
    """The log at word `at` of a segment; words from its end on are what it may restore.

    `line` is the word where the segment's control line starts: what almost every transaction
    changes lies in it, and saving it is one copy.
    """

    def __init__(self, memory: Memory, at: int, line: int) -> None:
        self._memory = memory
        self._at = at
        self._line = line
        self._snapshot = Snapshot(memory, line, at + _LINE, _LINE_WORDS)
        self._first = at + _ENTRIES
        self._end = at + _AFTER
        self._next = self._first

    def begin(self) -> None:
        """Start a transaction: whatever it changes in the control line is noted thereby."""
        if self._memory.load(self._at + _COMMIT_INDEX):
            self._memory.store(self._at + _COMMIT_INDEX, 0)
        self._snapshot.save()
        self._next = self._first

    def commit_by(self, index: int, value: int) -> None:
        """Let storing `value` at word `index` commit the transaction; before arm()."""
        memory = self._memory
        memory.store(self._at + _COMMIT_VALUE, value)
        memory.store(self._at + _COMMIT_INDEX, index)

    def note(self, index: int) -> None:
        """Log the present value of a word, before arm()."""
        memory = self._memory
        entry = self._next
        if entry >= self._end:
            raise DamagedLog("a transaction notes more words than the log holds")
        memory.store(entry, index)
        memory.store(entry + 1, memory.load(index))
        self._next = entry + 2

    def arm(self) -> None:
        """From here on a death undoes every store to a noted word."""
        self._memory.store(self._at, ((self._next - self._first) >> 1) + 1)

    def commit(self) -> None:
        """From here on the stores stand."""
        self._memory.store(self._at, 0)

    def roll_back(self) -> None:
        """Undo, or confirm, what the last holder left; DamagedLog if the log makes no sense."""
        memory = self._memory
        at = self._at
        count = memory.load(at)
        if count == 0 or count > _CAPACITY + 1:
            raise DamagedLog(f"{count} entries in an undo log of {_CAPACITY}")
        commit_index = memory.load(at + _COMMIT_INDEX)
        lowest = at + _AFTER
        highest = memory.size >> 3
        if commit_index:
            if not lowest <= commit_index < highest:
                raise DamagedLog(f"the undo log's commit word {commit_index} is outside")
            if memory.load(commit_index) == memory.load(at + _COMMIT_VALUE):
                memory.store(at + _RECOVERIES, memory.load(at + _RECOVERIES) + 1)
                memory.store(at, 0)
                return
        entry = at + _ENTRIES + 2 * (count - 1)
        while entry > at + _ENTRIES:
            entry -= 2
            index = memory.load(entry)
            if not lowest <= index < highest:
                raise DamagedLog(f"an undo entry names word {index}")
            memory.store(index, memory.load(entry + 1))
        for n in range(_LINE_WORDS):
            memory.store(self._line + n, memory.load(at + _LINE + n))
        memory.store(at + _RECOVERIES, memory.load(at + _RECOVERIES) + 1)
        memory.store(at, 0)

    def condemn(self) -> None:
        """Arm a log that makes no sense: until it is forgotten, every holder must rebuild."""
        self._memory.store(self._at, _CAPACITY + 2)

    def forget(self) -> None:
        """Clear a log that makes no sense, after everything derived was rebuilt."""
        self._memory.store(self._at, 0)
