"""The bytes of a queue in shared memory. Every offset in shmq comes from here.

A queue has two kinds of segments. The queue segment belongs to the producers:

    +----------------------+ 0
    | QUEUE                |   identity, settings, lock, undo log, watermarks
    +----------------------+ participants_at
    | PARTICIPANT × n      |   who is attached
    +----------------------+ reservations_at
    | RESERVATION × n      |   space lent out of the ring, not yet a message
    +----------------------+ index_at
    | ENTRY × entries      |   the lane index: a ring of published messages, in order
    +----------------------+ ring_at
    | ring_bytes           |   the records
    +----------------------+

A group segment belongs to the consumers of one group:

    +----------------------+ 0
    | GROUP                |   identity, lock, undo log, cursor, lists, counts
    +----------------------+ rows_at
    | ROW × rows           |   messages taken and not finished
    +----------------------+ ops_at
    | OP × ops             |   what happened to them, a ring
    +----------------------+

Each field says who writes it. *Constant*: the creator, before the magic. *Control*: only
under the segment's lock and through its undo log. *Hint*: a plain store under the lock; a
lost or wrong hint costs a wake-up or a look, never a message. Fields of an entry, row or
reservation that nothing points to yet are written plainly before the word that makes them
reachable.

To change a field: raise VERSION, edit the dtype, run `make docs`. Memory is not migrated: a
queue of another version is refused at attach.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from persist.format import offset

MAGIC = 0x3130_5145_554D_4853
VERSION = 1
CACHE_LINE = 64
PAGE = 4096

PARTICIPANTS = 512
RESERVATIONS = 256
OPS = 4096
SETTINGS_BYTES = 1024
UNDO_ENTRIES = 128
LINE_WORDS = CACHE_LINE // 8

_Field = tuple[str, str] | tuple[str, str, int]


def _lines(*lines: list[_Field]) -> np.dtype[Any]:
    """A dtype whose every list of fields starts a cache line of its own."""
    names, formats, offsets = [], [], []
    at = 0
    for line in lines:
        for field in line:
            shape = (field[1], (field[2],)) if len(field) == 3 else field[1]
            names.append(field[0])
            formats.append(np.dtype(shape))
            offsets.append(at)
            at += np.dtype(shape).itemsize
            assert at % 8 == 0, field
        at = -(-at // CACHE_LINE) * CACHE_LINE
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at})


_IDENTITY: list[_Field] = [  # constant
    ("magic", "<u8"),  # stored last: before it the segment is nobody's
    ("version", "<u8"),
    ("instance", "<u8"),  # random: ties a group segment to its queue segment
    ("boot_high", "<u8"),
    ("boot_low", "<u8"),
    ("pid_namespace", "<u8"),
    ("total_bytes", "<u8"),
    ("mutex_bytes", "<u8"),
]
_MUTEX: list[_Field] = [("mutex", "<u8", 8)]  # pthread_mutex_t, 40 bytes with glibc
_UNDO: list[_Field] = [
    ("undo_count", "<u8"),  # control; 0 = clean. Setting it arms, clearing it commits
    ("undo_commit_index", "<u8"),  # a word that commits the transaction by itself, or 0
    ("undo_commit_value", "<u8"),  # … by having this value
    ("recoveries", "<u8"),  # hint: how often somebody's unfinished work was undone
    ("undo_line", "<u8", LINE_WORDS),  # the control line as it was
    ("undo", "<u8", 2 * UNDO_ENTRIES),  # (word index, old value) of other words
]

QUEUE = _lines(
    _IDENTITY,
    [  # constant
        ("ring_bytes", "<u8"),
        ("ring_at", "<u8"),
        ("index_entries", "<u8"),
        ("index_at", "<u8"),
        ("participants_at", "<u8"),
        ("reservations_at", "<u8"),
        ("salt", "<u8"),
        ("settings_bytes", "<u8"),
    ],
    [("settings_crc", "<u8"), ("settings", "<u8", SETTINGS_BYTES // 8)],  # constant
    _MUTEX,
    _UNDO,
    [  # control; producers. This line is saved whole by every transaction
        ("tail", "<u8"),  # position where the next record may start
        ("lane_next", "<u8"),  # ordinal of the lane's next entry
        ("deleted", "<u8"),  # 1: the names are gone, this memory is an orphan
    ],
    [("published", "<u8")],  # control; producers: the seq of the next message; commits a put
    [("item_wakes", "<u8")],  # hint; producers: how many sleeping consumers were posted
    [  # hints; producers, before they sleep
        ("space_sleeps", "<u8"),  # how many producers went to sleep
        ("space_wanted", "<u8"),  # wake one when the group's `finished` reaches this
    ],
)

GROUP = _lines(
    _IDENTITY,
    [("rows", "<u8"), ("rows_at", "<u8"), ("ops", "<u8"), ("ops_at", "<u8")],  # constant
    _MUTEX,
    _UNDO,
    [  # control; consumers. This line is saved whole by every transaction
        ("cursor", "<u8"),  # ordinal of the next entry to take
        ("free_head", "<u8"),  # first row of the free list, + 1; 0 = none
        ("rows_used", "<u8"),  # rows at and above it were never used
        ("ready_head", "<u8"),  # first row to deliver again, + 1; 0 = none
        ("ready_tail", "<u8"),  # last such row, + 1
        ("finished", "<u8"),  # rows freed: acked messages
        ("op_next", "<u8"),  # number of the next op
        ("deleted", "<u8"),  # as in QUEUE
    ],
    [  # control; consumers
        ("redelivered", "<u8"),
        ("nacked", "<u8"),
        ("rejected", "<u8"),
        ("expired", "<u8"),
        ("died", "<u8"),  # deliveries that ended with the death of their process
        ("dead", "<u8"),  # messages given up, kept
    ],
    [  # hints; consumers
        ("sweep_at", "<u8"),  # CLOCK_MONOTONIC of the next look for expiries and deaths
        ("item_sleeps", "<u8"),  # how many consumers went to sleep
        ("space_wakes", "<u8"),  # how many sleeping producers were posted
    ],
)

PARTICIPANT: np.dtype[Any] = np.dtype(
    [
        ("tag", "<u8"),  # control: incarnation << 8 | state
        ("pid", "<u8"),
        ("started", "<u8"),  # field 22 of /proc/PID/stat, ticks since boot
        ("spare", "<u8", (5,)),
    ]
)
RESERVATION: np.dtype[Any] = np.dtype(
    [
        ("tag", "<u8"),  # control: incarnation << 8 | state
        ("owner", "<u8"),
        ("position", "<u8"),
        ("bytes", "<u8"),
        ("ordinal", "<u8"),  # control: of its entry, once published out of order
        ("spare", "<u8", (3,)),
    ]
)
ENTRY: np.dtype[Any] = np.dtype(
    [
        ("ordinal", "<u8"),
        ("seq", "<u8"),
        ("position", "<u8"),
        ("size_and_flags", "<u8"),  # record bytes, | OUT_OF_ORDER
        ("key_hash", "<u8"),
        ("timestamp", "<u8"),
    ]
)
ROW: np.dtype[Any] = np.dtype(
    [
        ("tag", "<u8"),  # control: generation << 8 | state; says alone what the row is
        ("seq", "<u8"),
        ("position", "<u8"),
        ("bytes", "<u8"),
        ("due", "<u8"),  # leased: the lease's end; waiting: when it is ready (monotonic ns)
        ("deliveries", "<u8"),
        ("owner", "<u8"),  # participant incarnation << 16 | participant
        ("next", "<u8"),  # row + 1 of the free or ready list
    ]
)
OP: np.dtype[Any] = np.dtype(
    [
        ("number", "<u8"),  # dense
        ("seq", "<u8"),
        ("kind", "<u8"),
        ("deliveries", "<u8"),
    ]
)

# States, in the low byte of a tag.
FREE = 0
LEASED, WAITING, READY, DEAD = 1, 2, 3, 4  # rows
RESERVED, PLACED = 1, 2  # reservations: being filled; published out of order, not yet taken
ACTIVE = 1  # participants

# Kinds of ops.
ACK, NACK, REJECT, EXPIRE, DIE, RETURN = 1, 2, 3, 4, 5, 6

OUT_OF_ORDER = 1 << 63

STRUCTURES = {
    "QUEUE": QUEUE,
    "GROUP": GROUP,
    "PARTICIPANT": PARTICIPANT,
    "RESERVATION": RESERVATION,
    "ENTRY": ENTRY,
    "ROW": ROW,
    "OP": OP,
}


def word(dtype: np.dtype[Any], field: str) -> int:
    """Where a field lies, counted in 8-byte words."""
    return offset(dtype, field) // 8


def words(dtype: np.dtype[Any]) -> int:
    """How many 8-byte words a structure takes."""
    assert dtype.itemsize % 8 == 0
    return dtype.itemsize // 8


def _page(size: int) -> int:
    return -(-size // PAGE) * PAGE


@dataclass(frozen=True)
class QueuePlan:
    """Where the parts of a queue segment lie; bytes."""

    ring_bytes: int
    index_entries: int

    @property
    def participants_at(self) -> int:
        return QUEUE.itemsize

    @property
    def reservations_at(self) -> int:
        return self.participants_at + PARTICIPANTS * PARTICIPANT.itemsize

    @property
    def index_at(self) -> int:
        return self.reservations_at + RESERVATIONS * RESERVATION.itemsize

    @property
    def ring_at(self) -> int:
        return _page(self.index_at + self.index_entries * ENTRY.itemsize)

    @property
    def total_bytes(self) -> int:
        return self.ring_at + self.ring_bytes


@dataclass(frozen=True)
class GroupPlan:
    """Where the parts of a group segment lie; bytes."""

    rows: int

    @property
    def rows_at(self) -> int:
        return GROUP.itemsize

    @property
    def ops_at(self) -> int:
        return self.rows_at + self.rows * ROW.itemsize

    @property
    def total_bytes(self) -> int:
        return _page(self.ops_at + OPS * OP.itemsize)
