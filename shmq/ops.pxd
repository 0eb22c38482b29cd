# C types for ops.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory

cdef uint64_t _OP_NEXT, _WORDS, _SEQ, _KIND, _DELIVERIES, _OPS

@cython.final
cdef class Ops:
    cdef Memory _memory
    cdef uint64_t _at

    @cython.locals(memory=Memory, at=uint64_t)
    cdef int place(self, uint64_t number, uint64_t kind, uint64_t seq, uint64_t deliveries) except -1
