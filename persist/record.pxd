# C types for record.py, read only when it is compiled; they change speed, never behaviour.
cimport cython
from libc.stdint cimport uint32_t, uint64_t

from persist.prim cimport Memory, crc32c, seed

cdef uint64_t _HEADER_BYTES, _CRC_AT, _CRC_BYTES, _MAGIC, _VERSION, _PAD_MARK, _U32
cdef uint64_t _FIRST_MASK, _FIRST

@cython.final
cdef class Header:
    cdef public uint64_t first, lane, fields_bytes, body_bytes, seq, timestamp

cpdef uint64_t record_bytes(uint64_t fields_bytes, uint64_t body_bytes) except? 0xA5A5A5A5A5A5A5A5

@cython.locals(index=uint64_t, check=uint64_t)
cpdef int write_header(
    Memory memory, uint64_t at, uint32_t start, uint64_t kind, uint64_t flags, uint64_t lane,
    uint64_t fields_bytes, uint64_t body_bytes, uint64_t raw_bytes, uint64_t seq,
    uint64_t timestamp,
) except -1

@cython.locals(index=uint64_t, first=uint64_t, sizes=uint64_t, fields_bytes=uint64_t,
               body_bytes=uint64_t)
cpdef int peek_header(Memory memory, uint64_t at, uint64_t limit, Header header) except -1

@cython.locals(fields_bytes=uint64_t, check=uint64_t)
cpdef int read_header(
    Memory memory, uint64_t at, uint64_t limit, uint32_t start, Header header
) except -1
cpdef uint64_t raw_bytes(Memory memory, uint64_t at) except? 0xA5A5A5A5A5A5A5A5
cdef _explain(uint64_t first, uint64_t at)

cpdef int write_body_crc(Memory memory, uint64_t at, uint64_t body_bytes) except -1
cpdef int check_body(Memory memory, uint64_t at, uint64_t body_bytes) except -1
cpdef int write_pad(Memory memory, uint64_t at, uint64_t pad_bytes, uint32_t start) except -1
@cython.locals(length=uint64_t)
cpdef uint64_t read_pad(
    Memory memory, uint64_t at, uint64_t limit, uint32_t start
) except? 0xA5A5A5A5A5A5A5A5
