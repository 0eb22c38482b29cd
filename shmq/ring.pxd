# C types for ring.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport int64_t, uint64_t

from persist.prim cimport Memory, seed
from persist.record cimport record_bytes, write_header
from shmq.lanes cimport Lane
from shmq.undo cimport Undo

cdef uint64_t _TAIL, _LANE_NEXT, _PUBLISHED, _SALT
cdef uint64_t _SLOT_WORDS, _SLOT_OWNER, _SLOT_POSITION, _SLOT_BYTES, _SLOT_ORDINAL, _SLOTS
cdef uint64_t _FREE, _RESERVED, _PLACED, _OUT_OF_ORDER, _HEADER_BYTES, _DATA, _MORE

@cython.final
cdef class Ring:
    cdef Memory _memory
    cdef Undo _undo
    cdef Lane _lane
    cdef uint64_t _ring_at, _ring_bytes, _entries, _slots_at, _slot_hint, _salt
    cdef uint64_t _cursor_seen, _gap_start, _gap_end
    cdef list _gaps
    cdef public uint64_t position

    cpdef use_gaps(self, list gaps, uint64_t cursor)
    cdef bint has_entries(self, uint64_t count) except -1
    @cython.locals(tail=uint64_t)
    cdef bint find(self, uint64_t size, uint64_t count) except -1
    @cython.locals(start=uint64_t, end=uint64_t)
    cdef bint _find_in_next_gap(self, uint64_t tail, uint64_t size) except -1
    @cython.locals(memory=Memory, undo=Undo, position=uint64_t, size=uint64_t, seq=uint64_t,
                   ordinal=uint64_t)
    cdef int64_t append(self, body, uint64_t body_bytes, uint64_t timestamp) except -2
    @cython.locals(memory=Memory, undo=Undo, position=uint64_t, size=uint64_t, seq=uint64_t,
                   ordinal=uint64_t, first=uint64_t, left=uint64_t, body_bytes=uint64_t)
    cdef int64_t append_many(self, list bodies, uint64_t timestamp) except -2
    @cython.locals(at=uint64_t)
    cdef int _write(
        self, uint64_t position, body, uint64_t body_bytes, uint64_t flags, uint64_t seq,
        uint64_t timestamp,
    ) except -1
    @cython.locals(memory=Memory, undo=Undo, slot=int64_t, at=uint64_t, tag=uint64_t,
                   position=uint64_t)
    cdef int64_t reserve(self, uint64_t size, uint64_t owner, Memory claim) except -2
    @cython.locals(memory=Memory, n=uint64_t, slot=uint64_t)
    cdef int64_t _free_slot(self) except -2
    @cython.locals(at=uint64_t)
    cdef uint64_t slot_owner(self, uint64_t slot) except? 0xA5A5A5A5A5A5A5A5
    cdef uint64_t slot_tag(self, uint64_t slot) except? 0xA5A5A5A5A5A5A5A5
    @cython.locals(memory=Memory, undo=Undo, at=uint64_t, position=uint64_t, size=uint64_t,
                   is_last=bint, seq=uint64_t, ordinal=uint64_t, place=uint64_t,
                   entry_size=uint64_t)
    cdef int64_t publish(
        self, uint64_t slot, uint64_t tag, uint64_t body_bytes, uint64_t timestamp
    ) except -2
    @cython.locals(memory=Memory, undo=Undo, at=uint64_t)
    cdef drop(self, uint64_t slot, uint64_t tag)
    @cython.locals(position=uint64_t)
    cdef uint64_t body_at(self, uint64_t slot) except? 0xA5A5A5A5A5A5A5A5
