"""What can be wrong with a log or a record.

LogError
├── CorruptRecord      bytes that no crash explains
└── UnknownFormat      written by a newer version, or not ours
"""


class LogError(Exception):
    """The base of every error of `persist`."""


class CorruptRecord(LogError):
    """Raised when a record's bytes fail their checksum or contradict themselves."""


class UnknownFormat(LogError):
    """Raised when bytes are whole but of a version or kind this code does not know."""
