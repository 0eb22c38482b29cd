# C types for producer.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport int64_t, uint64_t

from persist.prim cimport Memory, Mutex
from persist.record cimport record_bytes
from shmq.clock cimport Clock
from shmq.group cimport Group
from shmq.lock cimport Guard
from shmq.ring cimport Ring

cdef uint64_t _TAIL, _DELETED, _PUBLISHED, _ITEM_WAKES, _SPACE_SLEEPS, _SPACE_WANTED
cdef uint64_t _ITEM_SLEEPS, _SPACE_WAKES, _FINISHED, _SWEEP_AT, _SLOTS_BYTES
cdef uint64_t _INLINE, _SECOND, _NOWHERE

cdef class Producer:
    cdef object __weakref__
    cdef readonly object name, settings
    cdef readonly Guard guard
    cdef readonly Ring ring
    cdef readonly object _segments
    cdef readonly Memory _memory, _group_memory
    cdef readonly Group _group
    cdef readonly uint64_t _owner
    cdef Mutex _mutex
    cdef Clock _clock
    cdef object _space, _items
    cdef list _tickets
    cdef uint64_t _max_message, _max_batch

    @cython.locals(group=Group, body_bytes=uint64_t, seq=int64_t)
    cpdef put(self, body, sync=*, timeout=*)
    @cython.locals(size=uint64_t, timestamp=uint64_t, seq=int64_t)
    cdef int64_t _try_put(self, body, uint64_t body_bytes) except -2
    @cython.locals(seq=int64_t)
    cdef int64_t _put_slowly(self, body, uint64_t body_bytes, timeout) except -2
    @cython.locals(timestamp=uint64_t, first=int64_t)
    cdef int64_t _try_put_many(self, list batch, uint64_t size) except -2
    cdef _put_large(self, body, uint64_t body_bytes, timeout)
    @cython.locals(size=uint64_t, found=bint, slot=int64_t)
    cdef bint _claim(self, Memory claim, uint64_t body_bytes, deadline, timeout) except -1
    @cython.locals(timestamp=uint64_t, seq=int64_t, has_room=bint)
    cdef _publish(self, Memory claim, uint64_t body_bytes, deadline, timeout)
    cdef _unclaim(self, Memory claim)
    @cython.locals(tail=uint64_t)
    cdef _refresh(self)
    @cython.locals(ticket=uint64_t, finished=uint64_t)
    cdef _wait_for_space(self, deadline, timeout)
    @cython.locals(wakes=uint64_t, sleeps=uint64_t)
    cdef _wake_consumers(self, count)
    cdef _deadline(self, timeout)

@cython.final
cdef class Reservation:
    cdef Producer _queue
    cdef object _timeout, _view
    cdef uint64_t _nbytes
    cdef Memory _claim
    cdef readonly int64_t seq
