# cython: annotation_typing=False
"""The ring of finished operations of a group, numbered without gaps.

An op is appended in the transaction that changes its row: `place` writes it where nothing
points yet, the caller notes and stores `op_next`. A memory queue has no writer that would
carry ops to disk, so the oldest are overwritten.
"""

from persist.prim import Memory
from shmq import layout as _layout

_OP_NEXT = _layout.word(_layout.GROUP, "op_next")
_WORDS = _layout.words(_layout.OP)
_SEQ = _layout.word(_layout.OP, "seq")
_KIND = _layout.word(_layout.OP, "kind")
_DELIVERIES = _layout.word(_layout.OP, "deliveries")
_OPS = _layout.OPS

OP_NEXT = _OP_NEXT


class Ops:
    """The op ring of one group segment; the holder of its lock calls this."""

    def __init__(self, memory: Memory, ops_at: int) -> None:
        self._memory = memory
        self._at = ops_at >> 3

    def place(self, number: int, kind: int, seq: int, deliveries: int) -> None:
        """Write op `number`; it exists once `op_next` is beyond it."""
        memory = self._memory
        at = self._at + (number % _OPS) * _WORDS
        memory.store(at, number)
        memory.store(at + _SEQ, seq)
        memory.store(at + _KIND, kind)
        memory.store(at + _DELIVERIES, deliveries)
