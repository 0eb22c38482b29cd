# C types for clock.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport monotonic_ns, realtime_ns

@cython.final
cdef class Clock:
    cdef bint _frozen
    cdef uint64_t _monotonic, _real
    cpdef uint64_t monotonic(self) except? 0xA5A5A5A5A5A5A5A5
    cpdef uint64_t real(self) except? 0xA5A5A5A5A5A5A5A5
