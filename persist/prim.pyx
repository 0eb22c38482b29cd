"""What Python cannot say: atomic words, memcpy, crc32c in hardware, the robust mutex.

The compiled twin of prim.py; the names and meanings are the same and documented there.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.string cimport memcpy

cdef extern from *:
    """

    #if defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static uint32_t prim_crc_hardware(uint32_t crc, const unsigned char *at, size_t count) {
        uint64_t wide = crc;
        while (count >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            wide = __builtin_ia32_crc32di(wide, word);
            at += 8;
            count -= 8;
        }
        crc = (uint32_t)wide;
        while (count--) crc = __builtin_ia32_crc32qi(crc, *at++);
        return crc;
    }
    static int prim_has_hardware(void) { return __builtin_cpu_supports("sse4.2"); }
    #else
    static uint32_t prim_crc_hardware(uint32_t crc, const unsigned char *at, size_t count) {
        (void)at; (void)count; return crc;
    }
    static int prim_has_hardware(void) { return 0; }
    #endif

    static uint32_t prim_crc_table[256];
    static int prim_crc_how = 0;  /* 0 not decided, 1 hardware, 2 table */

    static uint32_t prim_crc(uint32_t crc, const unsigned char *at, size_t count) {
        if (prim_crc_how == 0) {
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t value = byte;
                for (int bit = 0; bit < 8; bit++)
                    value = (value >> 1) ^ (0x82F63B78u & (0u - (value & 1)));
                prim_crc_table[byte] = value;
            }
            prim_crc_how = prim_has_hardware() ? 1 : 2;
        }
        crc = ~crc;
        if (prim_crc_how == 1) {
            crc = prim_crc_hardware(crc, at, count);
        } else {
            while (count--) crc = prim_crc_table[(crc ^ *at++) & 0xff] ^ (crc >> 8);
        }
        return ~crc;
    }

    static inline void prim_pause(void) {
    #if defined(__x86_64__)
        __builtin_ia32_pause();
    #endif
    }

    static int prim_mutex_initialise(void *at) {
        pthread_mutexattr_t kind;
        int rc = pthread_mutexattr_init(&kind);
        if (rc) return rc;
        rc = pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        if (!rc) rc = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        if (!rc) rc = pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
        if (!rc) rc = pthread_mutex_init((pthread_mutex_t *)at, &kind);
        pthread_mutexattr_destroy(&kind);
        return rc;
    }

    static int prim_timedlock(void *at, uint64_t wait_ns) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t ns = (uint64_t)until.tv_nsec + wait_ns;
        until.tv_sec += (time_t)(ns / 1000000000u);
        until.tv_nsec = (long)(ns % 1000000000u);
        return pthread_mutex_clocklock((pthread_mutex_t *)at, CLOCK_MONOTONIC, &until);
    }
    static int prim_consistent(void *at) {
        return pthread_mutex_consistent((pthread_mutex_t *)at);
    }
    static int prim_gettid(void) { return (int)syscall(SYS_gettid); }
    """
    uint32_t prim_crc(uint32_t, const unsigned char *, size_t) noexcept nogil
    void prim_pause() noexcept nogil
    int prim_mutex_initialise(void *) noexcept nogil
    int prim_timedlock(void *, uint64_t) noexcept nogil
    int prim_consistent(void *) noexcept nogil
    int prim_gettid() noexcept nogil
    enum: EBUSY, EOWNERDEAD, ETIMEDOUT, EDEADLK
    size_t sizeof_mutex "sizeof(pthread_mutex_t)"

COMPILED = True
Buffer = object
MUTEX_BYTES = sizeof_mutex
TID_MASK = 0x3FFFFFFF
ACQUIRED, OWNER_DIED, TIMED_OUT, REENTERED, BROKEN = range(5)

cdef enum:
    _ACQUIRED = 0
    _OWNER_DIED = 1
    _TIMED_OUT = 2
    _REENTERED = 3
    _BROKEN = 4
    _TID_MASK = 0x3FFFFFFF
    _SPINS = 200
    _SLICE_NS = 100_000_000
    # Copies longer than this are made without the GIL.
    _LONG_COPY = 65_536


cdef int _outside(Memory memory, uint64_t at, uint64_t count) except -1:
    raise IndexError(f"{count} bytes at {at} lie outside a memory of {memory.size}")


cpdef uint32_t crc32c(data, uint32_t value=0) except? 0xA5A5A5A5:
    cdef Py_buffer held
    PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
    value = prim_crc(value, <const unsigned char *>held.buf, <size_t>held.len)
    PyBuffer_Release(&held)
    return value


cpdef uint64_t monotonic_ns() noexcept:
    return prim_clock(CLOCK_MONOTONIC)


cpdef uint64_t realtime_ns() noexcept:
    return prim_clock(CLOCK_REALTIME)


cpdef uint32_t seed(uint64_t salt, uint64_t position) noexcept:
    return prim_seed(salt, position)


def thread_id():
    return prim_gettid()


# Not cleared by the collector: that would drop the buffer's owner before the buffer is
# released. A memory refers to nothing that refers back to it.
@cython.no_gc_clear
cdef class Memory:
    def __init__(self, buffer):
        PyObject_GetBuffer(buffer, &self._held, PyBUF_WRITABLE)
        self._base = <unsigned char *>self._held.buf
        self.size = <uint64_t>self._held.len
        self._words = self.size // 8
        self.trace = None
        if <size_t>self._base % 8:
            raise ValueError("a Memory must start on an 8-byte boundary")

    def __dealloc__(self):
        if self._held.buf is not NULL:
            PyBuffer_Release(&self._held)

    def disown(self):
        self._words = 0
        self.size = 0

    cdef int _note(self, uint64_t index, uint64_t value) except -1:
        self.trace.append((index * 8, value))
        return 0

    cpdef int copy_in(self, uint64_t at, data) except -1:
        cdef Py_buffer held
        cdef uint64_t count
        cdef unsigned char *target = self._base + at
        cdef const char *source
        if PyBytes_CheckExact(data):
            count = <uint64_t>PyBytes_GET_SIZE(data)
            source = PyBytes_AS_STRING(data)
            if at > self.size or count > self.size - at:
                _outside(self, at, count)
            if self.trace is not None:
                self.trace.append((at, data))
            if count >= _LONG_COPY:
                with nogil:
                    memcpy(target, source, count)
            else:
                memcpy(target, source, count)
            return 0
        PyObject_GetBuffer(data, &held, PyBUF_SIMPLE)
        try:
            count = <uint64_t>held.len
            if at > self.size or count > self.size - at:
                _outside(self, at, count)
            if self.trace is not None:
                self.trace.append((at, bytes(data)))
            if count >= _LONG_COPY:
                with nogil:
                    memcpy(target, held.buf, count)
            else:
                memcpy(target, held.buf, count)
        finally:
            PyBuffer_Release(&held)
        return 0

    cpdef bytes copy_out(self, uint64_t at, uint64_t count):
        cdef bytes result
        cdef char *target
        if at > self.size or count > self.size - at:
            _outside(self, at, count)
        if count >= _LONG_COPY:
            result = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>count)
            target = PyBytes_AS_STRING(result)
            with nogil:
                memcpy(target, self._base + at, count)
            return result
        return PyBytes_FromStringAndSize(<char *>self._base + at, <Py_ssize_t>count)

    cpdef int copy_to(self, uint64_t at, uint64_t count, Memory target) except -1:
        if at > self.size or count > self.size - at:
            _outside(self, at, count)
        if count > target.size:
            _outside(target, 0, count)
        memcpy(target._base, self._base + at, count)
        return 0

    cpdef object view(self, uint64_t at, uint64_t count):
        if at > self.size or count > self.size - at:
            _outside(self, at, count)
        return memoryview(<object>self._held.obj)[at:at + count]

    cdef uint32_t crc(self, uint64_t at, uint64_t count, uint32_t value) except? 0xA5A5A5A5:
        if at > self.size or count > self.size - at:
            _outside(self, at, count)
        return prim_crc(value, self._base + at, count)

    cdef bint spin(self, uint64_t index, uint64_t seen, uint64_t rounds) except -1:
        cdef uint64_t n
        cdef bint changed = False
        if index >= self._words:
            _outside(self, index * 8, 8)
        with nogil:
            for n in range(rounds):
                if prim_load(self._base + index * 8) != seen:
                    changed = True
                    break
                prim_pause()
        return changed


cdef class Snapshot:
    def __init__(self, Memory memory, uint64_t source, uint64_t target, uint64_t count):
        memory.view(source * 8, count * 8)
        memory.view(target * 8, count * 8)
        self._memory = memory
        self._source = source * 8
        self._target = target * 8
        self._count = count * 8

    cdef int _note(self) except -1:
        self._memory.trace.append(
            (self._target, self._memory.copy_out(self._source, self._count))
        )
        return 0


cdef class Mutex:
    def __init__(self, Memory memory, uint64_t index):
        if index * 8 + sizeof_mutex > memory.size:
            _outside(memory, index * 8, sizeof_mutex)
        self._memory = memory
        self._index = index
        self._at = memory._base + index * 8

    cpdef int initialise(self) except -1:
        return prim_mutex_initialise(self._at)

    cpdef int acquire(self, int refusal, uint64_t timeout_ns) except -1:
        cdef int rc = refusal
        cdef uint64_t waited = 0
        cdef uint64_t step
        cdef int n
        for n in range(_SPINS):
            if rc != EBUSY:
                break
            if (prim_load(self._at) & _TID_MASK) == 0:
                rc = prim_trylock(self._at)
            prim_pause()
        while rc == EBUSY or rc == ETIMEDOUT:
            if waited >= timeout_ns:
                return _TIMED_OUT
            step = timeout_ns - waited
            if step > _SLICE_NS:
                step = _SLICE_NS
            with nogil:
                rc = prim_timedlock(self._at, step)
            waited += step
            if rc == ETIMEDOUT:
                # Not holding: a raising signal handler may run here and leak nothing.
                PyErr_CheckSignals()
        if rc == 0:
            return _ACQUIRED
        if rc == EOWNERDEAD:
            # Made consistent at once: what the dead owner left unfinished is told by the
            # armed undo log, not by this state, so that no path can unlock it unrecoverable.
            prim_consistent(self._at)
            return _OWNER_DIED
        if rc == EDEADLK:
            return _REENTERED
        return _BROKEN

    cpdef int abandon(self) except -1:
        # Consistent already: `acquire` saw to that before anything could interrupt it. But
        # try_acquire may have been refused with a lock that is ours, and the rest not reached.
        prim_consistent(self._at)
        return prim_unlock(self._at)

    cpdef bint is_mine(self) except -1:
        return (prim_load(self._at) & _TID_MASK) == <uint64_t>prim_gettid()

    cpdef int holder(self) except -1:
        return <int>(prim_load(self._at) & _TID_MASK)
