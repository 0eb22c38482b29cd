# C types for message.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

cdef class Holder:
    cdef int acknowledge(self, uint64_t row, uint64_t tag) except -1
    cdef int put_back(self, uint64_t row, uint64_t tag, delay, reason) except -1
    cdef int give_up(self, uint64_t row, uint64_t tag, reason) except -1
    cdef int prolong(self, uint64_t row, uint64_t tag, double seconds) except -1

@cython.final
cdef class Message:
    cdef Holder _holder
    cdef uint64_t _row, _tag
    cdef bint _is_settled
    cdef readonly uint64_t seq, timestamp, deliveries
    cdef readonly object body
