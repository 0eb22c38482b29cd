# C types for leases.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport int64_t, uint64_t

from persist.prim cimport Memory
from persist.record cimport Header
from shmq.lanes cimport Lane
from shmq.ops cimport Ops
from shmq.undo cimport Undo

cdef uint64_t _CURSOR, _FREE_HEAD, _ROWS_USED, _READY_HEAD, _READY_TAIL, _FINISHED
cdef uint64_t _REDELIVERED, _DEAD_COUNT, _OP_NEXT, _ROW_WORDS
cdef uint64_t _SEQ, _POSITION, _BYTES, _DUE, _DELIVERIES, _OWNER, _NEXT
cdef uint64_t _FREE, _LEASED, _WAITING, _READY, _DEAD, _ACK, _REJECT, _RETURN, _CHUNK

@cython.final
cdef class Scratch:
    cdef readonly Memory memory
    cdef readonly Header header
    cdef public uint64_t stale

    cdef int keep(self, uint64_t n, uint64_t row, uint64_t tag) except -1

@cython.final
cdef class Leases:
    cdef Memory _memory
    cdef Undo _undo
    cdef Ops _ops
    cdef Lane _lane
    cdef uint64_t _rows_at, _rows, _max_deliveries

    @cython.locals(count=uint64_t)
    cdef int take(self, Scratch scratch, uint64_t limit, uint64_t due, uint64_t owner) except -1
    @cython.locals(memory=Memory, undo=Undo, taken=Memory, lane=Lane, cursor=uint64_t,
                   free=uint64_t, used=uint64_t, count=uint64_t, row=uint64_t, at=uint64_t,
                   tag=uint64_t, n=uint64_t)
    cdef int _take_new(self, Scratch scratch, uint64_t limit, uint64_t due, uint64_t owner) except -1
    @cython.locals(memory=Memory, undo=Undo, head=uint64_t, at=uint64_t, tag=uint64_t,
                   following=uint64_t, deliveries=uint64_t)
    cdef bint _take_ready(self, Scratch scratch, uint64_t n, uint64_t due, uint64_t owner) except -1
    @cython.locals(memory=Memory, undo=Undo, taken=Memory, n=uint64_t, free=uint64_t,
                   number=uint64_t, finished=uint64_t, row=uint64_t, tag=uint64_t, at=uint64_t)
    cdef int finish(self, Scratch scratch, uint64_t count) except -1
    @cython.locals(memory=Memory, undo=Undo, at=uint64_t, deliveries=uint64_t, number=uint64_t,
                   counted=uint64_t)
    cdef bint give_back(self, uint64_t row, uint64_t tag, uint64_t kind, uint64_t due) except -1
    @cython.locals(undo=Undo, at=uint64_t)
    cdef bint ready(self, uint64_t row, uint64_t tag) except -1
    @cython.locals(last=uint64_t)
    cdef int _note_ready(self, uint64_t at) except -1
    @cython.locals(memory=Memory, last=uint64_t)
    cdef int _store_ready(self, uint64_t row, uint64_t at, uint64_t tag) except -1
    @cython.locals(memory=Memory, undo=Undo, at=uint64_t)
    cdef bint extend(self, uint64_t row, uint64_t tag, uint64_t due) except -1
    cdef uint64_t due(self, uint64_t row) except? 0xA5A5A5A5A5A5A5A5
    cdef uint64_t deliveries(self, uint64_t row) except? 0xA5A5A5A5A5A5A5A5
    @cython.locals(used=uint64_t)
    cdef int64_t snapshot(self, Memory scratch) except -1
    cdef uint64_t row_at(self, uint64_t row) except? 0xA5A5A5A5A5A5A5A5
    cdef _damaged(self, uint64_t row)
