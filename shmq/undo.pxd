# C types for undo.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory, Snapshot

cdef uint64_t _COMMIT_INDEX, _COMMIT_VALUE, _RECOVERIES, _LINE, _ENTRIES, _LINE_WORDS
cdef uint64_t _CAPACITY, _AFTER

@cython.final
cdef class Undo:
    cdef Memory _memory
    cdef Snapshot _snapshot
    cdef uint64_t _at, _line, _first, _next, _end

    cdef int begin(self) except -1
    @cython.locals(memory=Memory)
    cdef int commit_by(self, uint64_t index, uint64_t value) except -1
    @cython.locals(memory=Memory, entry=uint64_t)
    cdef int note(self, uint64_t index) except -1
    cdef int arm(self) except -1
    cdef int commit(self) except -1
    @cython.locals(memory=Memory, at=uint64_t, count=uint64_t, commit_index=uint64_t,
                   lowest=uint64_t, highest=uint64_t, entry=uint64_t, index=uint64_t, n=uint64_t)
    cdef roll_back(self)
    cdef int condemn(self) except -1
    cdef int forget(self) except -1
