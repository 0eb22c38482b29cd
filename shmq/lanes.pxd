# C types for lanes.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory

cdef uint64_t _PUBLISHED, _WORDS, _SEQ, _POSITION, _SIZE, _KEY_HASH, _TIMESTAMP
cdef uint64_t _OUT_OF_ORDER, _SIZE_MASK

@cython.final
cdef class Lane:
    cdef Memory _memory
    cdef uint64_t _at, _entries, _ring_bytes, _published
    cdef public uint64_t seq, position, size
    cdef public bint is_out_of_order

    @cython.locals(memory=Memory, at=uint64_t)
    cdef int place(
        self, uint64_t ordinal, uint64_t seq, uint64_t position, uint64_t size, uint64_t timestamp
    ) except -1
    @cython.locals(memory=Memory, at=uint64_t, seq=uint64_t, size=uint64_t, position=uint64_t)
    cpdef bint look(self, uint64_t ordinal) except -1
