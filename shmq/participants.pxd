# C types for participants.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory
from shmq.undo cimport Undo

cdef uint64_t _WORDS, _PID, _STARTED, _COUNT, _FREE, _ACTIVE

@cython.final
cdef class Participants:
    cdef Memory _memory
    cdef Undo _undo
    cdef uint64_t _at

    @cython.locals(memory=Memory, undo=Undo, slot=uint64_t, at=uint64_t, tag=uint64_t,
                   incarnation=uint64_t)
    cdef uint64_t join(self, uint64_t pid, uint64_t started) except? 0xA5A5A5A5A5A5A5A5
    @cython.locals(memory=Memory, undo=Undo, at=uint64_t)
    cdef leave(self, uint64_t owner)
    @cython.locals(memory=Memory, slot=uint64_t, at=uint64_t, tag=uint64_t)
    cpdef list attached(self)
