# The C side of the one permitted twin. Inline bodies live here so that the hot modules
# compile them in; prim.pyx holds the rest, prim.py the same names in plain Python.
cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>

    static inline uint64_t prim_load(const void *at) {
        return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
    }
    static inline void prim_store(void *at, uint64_t value) {
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
    }
    static inline uint64_t prim_clock(int which) {
        struct timespec now;
        clock_gettime(which, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
    static inline uint32_t prim_seed(uint64_t salt, uint64_t position) {
        uint64_t mixed = salt ^ position;
        return (uint32_t)(mixed ^ (mixed >> 32));
    }
    static inline int prim_trylock(void *at) {
        return pthread_mutex_trylock((pthread_mutex_t *)at);
    }
    static inline int prim_unlock(void *at) {
        return pthread_mutex_unlock((pthread_mutex_t *)at);
    }
    """
    uint64_t prim_load(const void *) noexcept nogil
    void prim_store(void *, uint64_t) noexcept nogil
    uint64_t prim_clock(int) noexcept nogil
    uint32_t prim_seed(uint64_t, uint64_t) noexcept nogil
    int prim_trylock(void *) noexcept nogil
    int prim_unlock(void *) noexcept nogil
    int CLOCK_MONOTONIC
    int CLOCK_REALTIME


cdef int _outside(Memory memory, uint64_t at, uint64_t count) except -1
cpdef uint32_t crc32c(data, uint32_t value=*) except? 0xA5A5A5A5

cpdef uint64_t monotonic_ns() noexcept
cpdef uint64_t realtime_ns() noexcept
cpdef uint32_t seed(uint64_t salt, uint64_t position) noexcept


@cython.final
cdef class Memory:
    cdef unsigned char *_base
    cdef uint64_t _words
    cdef Py_buffer _held
    cdef readonly uint64_t size
    cdef public object trace

    cdef inline uint64_t load(self, uint64_t index) except? 0xA5A5A5A5A5A5A5A5:
        if index >= self._words:
            _outside(self, index * 8, 8)
        return prim_load(self._base + index * 8)

    cdef inline int store(self, uint64_t index, uint64_t value) except -1:
        if index >= self._words:
            _outside(self, index * 8, 8)
        if self.trace is not None:
            self._note(index, value)
        prim_store(self._base + index * 8, value)
        return 0

    cdef int _note(self, uint64_t index, uint64_t value) except -1
    cpdef int copy_in(self, uint64_t at, data) except -1
    cpdef bytes copy_out(self, uint64_t at, uint64_t count)
    cpdef int copy_to(self, uint64_t at, uint64_t count, Memory target) except -1
    cpdef object view(self, uint64_t at, uint64_t count)
    cdef uint32_t crc(self, uint64_t at, uint64_t count, uint32_t value) except? 0xA5A5A5A5
    cdef bint spin(self, uint64_t index, uint64_t seen, uint64_t rounds) except -1


@cython.final
cdef class Snapshot:
    cdef Memory _memory
    cdef uint64_t _source, _target, _count

    cdef inline int save(self) except -1:
        if self._memory._words == 0:
            _outside(self._memory, self._target, self._count)
        if self._memory.trace is not None:
            self._note()
        memcpy(self._memory._base + self._target, self._memory._base + self._source, self._count)
        return 0

    cdef int _note(self) except -1


@cython.final
cdef class Mutex:
    cdef Memory _memory
    cdef unsigned char *_at
    cdef uint64_t _index

    cdef inline int try_acquire(self) noexcept:
        # The whole common case: one call into libc, no system call.
        return prim_trylock(self._at)

    cdef inline int release(self) noexcept:
        return prim_unlock(self._at)

    cpdef int abandon(self) except -1
    cpdef int acquire(self, int refusal, uint64_t timeout_ns) except -1
    cpdef bint is_mine(self) except -1
    cpdef int holder(self) except -1
    cpdef int initialise(self) except -1
