"""What must be true of a queue's bytes whenever nobody holds a lock.

Pure functions over the two segments of a memory queue: they read raw bytes (a mapping or a
bytearray), use no object of the queue, and trust nothing but layout.py and the record
format. `check` names what is wrong; `Picture.content` is everything reachable, so that two
moments can be compared for being the same state.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from persist.errors import LogError
from persist.prim import Memory, seed
from persist.record import HEADER_BYTES, Header, read_header
from shmq.layout import (
    ACK,
    DEAD,
    DIE,
    ENTRY,
    EXPIRE,
    FREE,
    GROUP,
    LEASED,
    NACK,
    OP,
    OUT_OF_ORDER,
    PARTICIPANT,
    PARTICIPANTS,
    PLACED,
    QUEUE,
    READY,
    REJECT,
    RESERVATION,
    RESERVATIONS,
    RESERVED,
    RETURN,
    ROW,
    WAITING,
    word,
)

BodyOf = Callable[[int, int], bytes]  # (seq, length) → the body that was put

_QUEUE_CONTROL = ("tail", "lane_next", "published", "deleted")
_GROUP_CONTROL = (
    "cursor", "free_head", "rows_used", "ready_head", "ready_tail", "finished", "op_next",
    "deleted", "redelivered", "nacked", "rejected", "expired", "died", "dead",
)  # fmt: skip
_COUNTED = {ACK: "finished", NACK: "nacked", REJECT: "rejected", EXPIRE: "expired", DIE: "died"}


class Row(NamedTuple):
    number: int
    tag: int
    seq: int
    position: int
    bytes: int
    due: int
    deliveries: int
    owner: int
    next: int

    @property
    def state(self) -> int:
        return self.tag & 0xFF


class Entry(NamedTuple):
    ordinal: int
    seq: int
    position: int
    size_and_flags: int
    key_hash: int
    timestamp: int

    @property
    def bytes(self) -> int:
        return self.size_and_flags & (OUT_OF_ORDER - 1)


class Slot(NamedTuple):
    tag: int
    owner: int
    position: int
    bytes: int
    ordinal: int

    @property
    def state(self) -> int:
        return self.tag & 0xFF


class Op(NamedTuple):
    number: int
    seq: int
    kind: int
    deliveries: int


class Picture:
    """Both segments at one instant, as numbers."""

    def __init__(self, queue: Any, group: Any) -> None:
        self._memory = Memory(queue)
        words = memoryview(queue).cast("B").cast("Q")
        group_words = memoryview(group).cast("B").cast("Q")
        self.undo_counts = (
            words[word(QUEUE, "undo_count")],
            group_words[word(GROUP, "undo_count")],
        )
        self.queue = {name: words[word(QUEUE, name)] for name in _QUEUE_CONTROL}
        self.group = {name: group_words[word(GROUP, name)] for name in _GROUP_CONTROL}
        self.salt = words[word(QUEUE, "salt")]
        self.ring_bytes = words[word(QUEUE, "ring_bytes")]
        self.ring_at = words[word(QUEUE, "ring_at")]
        self.entries = words[word(QUEUE, "index_entries")]
        rows = group_words[word(GROUP, "rows")]
        table = np.frombuffer(group, ROW, rows, group_words[word(GROUP, "rows_at")])
        used = min(self.group["rows_used"], rows)
        self.rows = [Row(n, *row) for n, row in enumerate(table[:used].tolist())]
        self.tags_beyond = bool(table["tag"][used:].any())
        index = np.frombuffer(queue, ENTRY, self.entries, words[word(QUEUE, "index_at")])
        cursor, lane_next = self.group["cursor"], self.queue["lane_next"]
        ahead = range(cursor, min(lane_next, cursor + self.entries))
        self.unread = [
            Entry(*entry) for entry in index[[n % self.entries for n in ahead]].tolist()
        ] if ahead else []  # fmt: skip
        #: Entries from which a reader would take a message that was never put.
        self.forged = np.flatnonzero(
            (index["ordinal"] >= lane_next) & (index["seq"] < self.queue["published"])
        ).tolist()
        slots = np.frombuffer(
            queue, RESERVATION, RESERVATIONS, words[word(QUEUE, "reservations_at")]
        )
        self.slots = [
            Slot(*slot[:5]) for slot in slots[(slots["tag"] & 0xFF) != FREE].tolist()
        ]  # fmt: skip
        participants = np.frombuffer(
            queue, PARTICIPANT, PARTICIPANTS, words[word(QUEUE, "participants_at")]
        )["tag"]
        self.owners = {
            (int(participants[n]) >> 8) << 16 | int(n) for n in np.flatnonzero(participants & 0xFF)
        }
        self._participant_tags = participants.tobytes()
        self._slot_tags = slots["tag"].tobytes()
        done = np.frombuffer(
            group, OP, group_words[word(GROUP, "ops")], group_words[word(GROUP, "ops_at")]
        )
        self.are_ops_whole = self.group["op_next"] <= len(done)
        self.ops = [Op(*op) for op in done[: self.group["op_next"]].tolist()]
        self._broken_lists: list[str] = []
        self.free = self._follow("free_head")
        self.ready = self._follow("ready_head")

    def _follow(self, head: str) -> tuple[int, ...]:
        """The rows of a list, in its order."""
        found: list[int] = []
        following = self.group[head]
        while following:
            if following > len(self.rows) or following - 1 in found:
                self._broken_lists.append(f"{head}: {found} goes on to row {following - 1}")
                break
            found.append(following - 1)
            following = self.rows[following - 1].next
        return tuple(found)

    def content(self) -> tuple[Any, ...]:
        """Everything that can be reached, exactly; no hints, no left-over bytes."""
        return (
            tuple(self.queue.values()),
            tuple(self.group.values()),
            self._participant_tags,
            self._slot_tags,
            tuple(slot if slot.state == PLACED else slot[:4] for slot in self.slots),
            tuple(self.unread),
            # What a free row holds, and where a row that is in no list points, means nothing.
            tuple(row[:2] if row.state == FREE else row[:8] for row in self.rows),
            self.free,
            self.ready,
            tuple(self.ops),
        )

    def problems(self, body_of: BodyOf | None = None) -> list[str]:
        """What is wrong, in words; empty if all is well."""
        return [
            *self._broken_lists,
            *self._log_problems(),
            *self._row_problems(),
            *self._lease_problems(),
            *self._lane_problems(),
            *self._slot_problems(),
            *self._space_problems(),
            *self._count_problems(),
            *self._record_problems(body_of),
        ]

    def live_rows(self) -> list[Row]:
        """The rows that hold a message."""
        return [row for row in self.rows if row.state != FREE]

    def _log_problems(self) -> Iterator[str]:
        if any(self.undo_counts):
            yield f"undo logs left armed: {self.undo_counts}"

    def _row_problems(self) -> Iterator[str]:
        if self.group["rows_used"] > len(self.rows):
            yield f"{self.group['rows_used']} rows used of {len(self.rows)}"
        if self.tags_beyond:
            yield "a row never used has a tag"
        by_state = {state: [r.number for r in self.rows if r.state == state] for state in range(5)}
        if sum(map(len, by_state.values())) != len(self.rows):
            yield f"a row is in no state: tags {[hex(row.tag) for row in self.rows]}"
        if sorted(self.free) != by_state[FREE]:
            yield f"free list {self.free}, free rows {by_state[FREE]}"
        if sorted(self.ready) != by_state[READY]:
            yield f"ready list {self.ready}, ready rows {by_state[READY]}"
        last = self.ready[-1] + 1 if self.ready else 0
        if self.group["ready_tail"] != last:
            yield f"ready_tail {self.group['ready_tail']}, the list ends at {last}"
        if self.group["dead"] != len(by_state[DEAD]):
            yield f"dead {self.group['dead']}, dead rows {by_state[DEAD]}"

    def _lease_problems(self) -> Iterator[str]:
        for row in self.rows:
            if row.state == LEASED and row.owner not in self.owners:
                yield f"row {row.number} is leased to {row.owner:#x}, who is not attached"
            if row.state in (LEASED, WAITING) and not row.due:
                yield f"row {row.number} is never due"
            if row.state != FREE and not row.deliveries:
                yield f"row {row.number} was never delivered"

    def _lane_problems(self) -> Iterator[str]:
        published, lane_next = self.queue["published"], self.queue["lane_next"]
        cursor = self.group["cursor"]
        if lane_next != published:  # one lane
            yield f"lane_next {lane_next}, published {published}"
        if cursor > lane_next or lane_next - cursor > self.entries:
            yield f"cursor {cursor}, lane_next {lane_next}, entries {self.entries}"
        for ordinal, entry in enumerate(self.unread, cursor):
            if entry.ordinal != ordinal or entry.seq != ordinal:
                yield f"entry {ordinal} is {entry}"
        if self.forged:
            yield f"entries {self.forged} look published and are not"
        for slot in self.slots:
            if slot.state == PLACED and slot.ordinal >= cursor:
                places = {(entry.ordinal, entry.position) for entry in self.unread}
                if (slot.ordinal, slot.position) not in places:
                    yield f"{slot} was published, its entry is not there"

    def _slot_problems(self) -> Iterator[str]:
        for slot in self.slots:
            if slot.state == RESERVED and slot.owner not in self.owners:
                yield f"space is lent to {slot.owner:#x}, who is not attached"
            if slot.state not in (RESERVED, PLACED):
                yield f"a reservation is in no state: {slot}"

    def _space_problems(self) -> Iterator[str]:
        taken = [(row.position, row.bytes, f"row {row.number}") for row in self.live_rows()]
        taken += [(entry.position, entry.bytes, f"entry {entry.ordinal}") for entry in self.unread]
        # A reservation that was published is its entry, or its row: counted there.
        taken += [
            (slot.position, slot.bytes, f"reservation {slot.tag:#x}")
            for slot in self.slots
            if slot.state == RESERVED
        ]
        places = []
        for position, size, what in taken:
            start = position % self.ring_bytes
            places.append((start, start + size, what))
            if not HEADER_BYTES <= size <= self.ring_bytes - start:
                yield f"{what} lies at {position} with {size} bytes: outside the ring"
            if position + size > self.queue["tail"]:
                yield f"{what} ends at {position + size}, behind the tail {self.queue['tail']}"
        for one, other in pairwise(sorted(places)):
            if one[1] > other[0]:
                yield f"{one[2]} and {other[2]} overlap"
        in_order = [e.position for e in self.unread if e.size_and_flags < OUT_OF_ORDER]
        if in_order != sorted(in_order):
            yield f"entries in order lie at {in_order}"

    def _count_problems(self) -> Iterator[str]:
        group = self.group
        live = [row.seq for row in self.live_rows()] + [entry.seq for entry in self.unread]
        published = self.queue["published"]
        if len(set(live)) != len(live):
            yield f"a message is there twice: {sorted(live)}"
        if published != group["finished"] + len(live):
            yield f"published {published}, finished {group['finished']}, there are {len(live)}"
        if not self.are_ops_whole:
            return  # the oldest were overwritten, as they may be
        if [op.number for op in self.ops] != list(range(group["op_next"])):
            yield f"ops are not numbered to {group['op_next']}"
        kinds = [op.kind for op in self.ops]
        for kind, name in _COUNTED.items():
            if kinds.count(kind) != group[name]:
                yield f"{name} {group[name]}, ops say {kinds.count(kind)}"
        if any(kind not in (*_COUNTED, RETURN) for kind in kinds):
            yield f"an op of no kind: {kinds}"
        acked = [op.seq for op in self.ops if op.kind == ACK]
        if sorted(acked + live) != list(range(published)):
            yield f"of {published} messages {sorted(acked)} are acked and {sorted(live)} are there"
        deliveries = sum(op.deliveries for op in self.ops if op.kind == ACK)
        deliveries += sum(row.deliveries for row in self.live_rows())
        if deliveries != group["cursor"] + group["redelivered"]:
            yield f"{deliveries} deliveries, {group['cursor']} + {group['redelivered']} counted"

    def _record_problems(self, body_of: BodyOf | None) -> Iterator[str]:
        records = [(row.seq, row.position, row.bytes) for row in self.live_rows()]
        records += [(entry.seq, entry.position, entry.bytes) for entry in self.unread]
        header = Header()
        for seq, position, size in records:
            at = self.ring_at + position % self.ring_bytes
            try:
                read_header(self._memory, at, at + size, seed(self.salt, position), header)
            except LogError as error:
                yield f"the record of message {seq}: {error}"
                continue
            if header.seq != seq:
                yield f"the record of message {seq} is of {header.seq}"
            elif body_of is not None:
                body = self._memory.copy_out(at + HEADER_BYTES, header.body_bytes)
                if body != body_of(seq, header.body_bytes):
                    yield f"the body of message {seq} is damaged"


def check(queue: Any, group: Any, body_of: BodyOf | None = None) -> list[str]:
    """What is wrong with a queue whose two segments are these; empty if all is well.

    `queue` and `group` are writable buffers (a mapping, a bytearray). Nobody may be at work
    in them. `body_of` tells which body a message was put with, to compare.
    """
    return Picture(queue, group).problems(body_of)
