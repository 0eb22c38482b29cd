# C types for lock.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory, Mutex
from shmq.undo cimport Undo

cdef uint64_t _TIMEOUT_NS, _TID_MASK
cdef int _ACQUIRED, _OWNER_DIED

@cython.final
cdef class Guard:
    cdef readonly Memory memory
    cdef readonly Mutex mutex
    cdef readonly Undo undo
    cdef public object rebuild
    cdef public uint64_t deaths
    cdef uint64_t _mutex_at, _undo_at

    cpdef int check(self) except -1
    @cython.locals(refusal=int)
    cpdef int enter(self) except -1
    cpdef leave(self)
    cdef _recover(self)
    cdef mend(self)
    cdef _explain(self, int answer)
