# C types for consumer.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint64_t

from persist.prim cimport Memory, Mutex
from persist.record cimport Header, peek_header
from shmq.clock cimport Clock
from shmq.lanes cimport Lane
from shmq.leases cimport Leases, Scratch
from shmq.lock cimport Guard
from shmq.message cimport Holder, Message

cdef uint64_t _MUTEX, _TID_MASK, _FINISHED, _DELETED, _SWEEP_AT, _ITEM_SLEEPS, _SPACE_WAKES
cdef uint64_t _PUBLISHED, _ITEM_WAKES, _SPACE_SLEEPS, _SPACE_WANTED
cdef uint64_t _ROW_WORDS, _ROW_SEQ, _ROW_POSITION, _ROW_SIZE, _ROW_DELIVERIES
cdef uint64_t _NACK, _REJECT, _HEADER_BYTES, _SECOND, _SWEEP_NS, _SPINS, _CHUNK

cdef class Consumer(Holder):
    cdef Memory _memory, _queue_memory
    cdef Mutex _mutex
    cdef readonly Guard guard
    cdef readonly Leases leases
    cdef Lane _lane
    cdef Clock _clock
    cdef object _items, _space, _queue, _backoff
    cdef list _scratches, _tickets
    cdef uint64_t _rows_at, _ring_at, _ring_bytes, _visibility, _max_deliveries
    cdef public uint64_t owner
    cdef public int state

    @cython.locals(scratch=Scratch, message=Message, count=int)
    cpdef get(self, timeout=*)
    cpdef list get_many(self, limit, timeout=*)
    @cython.locals(scratch=Scratch, message=Message, count=int, n=int, messages=list)
    cdef list _try_get_many(self, uint64_t limit)
    cdef Scratch _scratch(self)
    @cython.locals(memory=Memory, is_sweeping=bint, count=int)
    cdef int _take(self, Scratch scratch, uint64_t limit, uint64_t now) except -1
    @cython.locals(memory=Memory, queue_memory=Memory, header=Header, at=uint64_t,
                   row=uint64_t, tag=uint64_t,
                   seq=uint64_t, position=uint64_t, size=uint64_t, deliveries=uint64_t,
                   place=uint64_t, message=Message)
    cdef Message _message(self, Scratch scratch, uint64_t n)
    @cython.locals(seen=uint64_t)
    cdef list _get_many_slowly(self, limit, timeout)
    @cython.locals(ticket=uint64_t)
    cdef _sleep(self, uint64_t seen, double seconds)

    @cython.locals(scratch=Scratch, finished=int)
    cdef int acknowledge(self, uint64_t row, uint64_t tag) except -1
    @cython.locals(scratch=Scratch, batch=list, lost=list, start=uint64_t)
    cpdef ack_many(self, messages)
    @cython.locals(end=uint64_t, n=uint64_t, message=Message)
    cdef uint64_t _finish_chunk(
        self, Scratch scratch, list batch, uint64_t start, list lost
    ) except? 0xA5A5A5A5A5A5A5A5
    cdef int put_back(self, uint64_t row, uint64_t tag, delay, reason) except -1
    cdef _backoff_of(self, uint64_t row)
    cdef int give_up(self, uint64_t row, uint64_t tag, reason) except -1
    @cython.locals(done=bint)
    cdef int _settle(self, uint64_t row, uint64_t tag, uint64_t kind, uint64_t due) except -1
    @cython.locals(done=bint)
    cdef int prolong(self, uint64_t row, uint64_t tag, double seconds) except -1
    cdef tuple _stale(self, uint64_t row, uint64_t tag)
    cpdef sweep(self, uint64_t now)
    cdef _wake_consumer(self)
    @cython.locals(memory=Memory, queue_memory=Memory)
    cdef int _wake_producer(self) except -1
    @cython.locals(is_due=bint, wakes=uint64_t)
    cdef _post_producer(self)
    cpdef check_open(self)
    cdef _gone(self)
