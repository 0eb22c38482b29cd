"""The segment log of shmq: bytes in, bytes out; knows nothing of queues or shared memory.

So far: the record format, final, and the code that writes and reads one record.
"""

from persist.errors import CorruptRecord, LogError, UnknownFormat

__all__ = [
    # .errors
    "CorruptRecord",
    "LogError",
    "UnknownFormat",
]
