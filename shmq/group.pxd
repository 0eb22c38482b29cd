# C types for group.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory
from shmq.consumer cimport Consumer

cdef uint64_t _CURSOR, _DELETED, _SWEEP_AT, _DIE, _RETURN, _SWEEP_NS, _IDLE_NS

# Not final: Cython refuses overridden methods in a final class written as plain Python.
cdef class Group(Consumer):
    cpdef sweep(self, uint64_t now)
    @cython.locals(ordinal=uint64_t)
    cpdef tuple snapshot(self, Memory scratch)
