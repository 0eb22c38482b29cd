# C types for queue.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory
from shmq.participants cimport Participants
from shmq.producer cimport Producer

cdef uint64_t _DELETED, _PUBLISHED, _RECOVERIES

@cython.final
cdef class Queue(Producer):
    cdef readonly Participants participants
