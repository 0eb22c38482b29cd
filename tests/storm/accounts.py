"""Who put what and who was given what: written by workers that die, judged at the end.

Each worker writes into a page of shared memory that its parent made, so what it knew when
it was killed is still there. A producer says what it will try before each put and writes
down what returned; a consumer writes down what it was given, that it is about to ack it,
and that the ack returned. `Ledger` collects the pages of the dead and says what does not
add up.
"""

import mmap
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shmq import Queue, layout

ENTRY = np.dtype([("key", "<u8"), ("seq", "<u8"), ("deliveries", "<u8"), ("state", "<u8")])
GIVEN, ACKING, ACKED, GIVEN_BACK = range(4)  # states of a delivery
CAPACITY = 1 << 14  # entries in a page; a worker that fills its page leaves

_IN_CALL_SINCE, _LONGEST, _ATTEMPTED, _COUNT, _HEAD = 0, 1, 2, 3, 8
PAGE_BYTES = _HEAD * 8 + CAPACITY * ENTRY.itemsize


class Page:
    """The shared notes of one worker; as a context manager it tells that a call is under way."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, PAGE_BYTES)
        self._words = memoryview(self._map).cast("Q")
        self.incarnation = 0

    def turn(self, incarnation: int) -> None:
        """Start afresh, for another worker."""
        self.incarnation = incarnation
        for index in range(_HEAD):
            self._words[index] = 0

    def __enter__(self) -> None:
        self._words[_IN_CALL_SINCE] = time.monotonic_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        took = time.monotonic_ns() - self._words[_IN_CALL_SINCE]
        self._words[_IN_CALL_SINCE] = 0
        self._words[_LONGEST] = max(self._words[_LONGEST], took)

    @property
    def in_call_since(self) -> int:
        """When the call under way began, CLOCK_MONOTONIC ns; 0 outside of calls."""
        return self._words[_IN_CALL_SINCE]

    @property
    def longest(self) -> int:
        """The longest call that ended, ns."""
        return self._words[_LONGEST]

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return CAPACITY - self._words[_COUNT]

    def attempt(self, upto: int) -> None:
        """Say that every message below `upto` may exist from now on."""
        self._words[_ATTEMPTED] = upto

    def write(self, key: int, seq: int, deliveries: int = 0) -> int:
        """Note a put that returned, or a delivery; the entry's number."""
        number = self._words[_COUNT]
        at = _HEAD + 4 * number
        self._words[at] = key
        self._words[at + 1] = seq
        self._words[at + 2] = deliveries
        self._words[at + 3] = GIVEN
        self._words[_COUNT] = number + 1
        return number

    def mark(self, number: int, state: int) -> None:
        """Note how far a delivery is settled."""
        self._words[_HEAD + 4 * number + 3] = state

    def read(self) -> tuple[int, NDArray[Any]]:
        """What was attempted, and the entries; the worker is dead."""
        count = self._words[_COUNT]
        return self._words[_ATTEMPTED], np.frombuffer(self._map, ENTRY, count, _HEAD * 8).copy()


class Ledger:
    """Everything that the workers of a storm wrote down."""

    def __init__(self) -> None:
        self._attempted: dict[int, int] = {}
        self._puts: list[NDArray[Any]] = [np.empty(0, ENTRY)]
        self._given: list[NDArray[Any]] = [np.empty(0, ENTRY)]
        self._out_of_order = 0

    @property
    def puts(self) -> int:
        """How many puts returned."""
        return sum(map(len, self._puts))

    @property
    def deliveries(self) -> int:
        """How many deliveries were written down."""
        return sum(map(len, self._given))

    def add_producer(self, page: Page) -> None:
        """Take over the page of a producer that is dead or done."""
        self._attempted[page.incarnation], entries = page.read()
        self._puts.append(entries)

    def add_consumer(self, page: Page) -> None:
        """Take over the page of a consumer that is dead or done."""
        _, entries = page.read()
        first = entries["seq"][entries["deliveries"] == 1]
        self._out_of_order += int(np.count_nonzero(first[1:] <= first[:-1]))
        self._given.append(entries)

    def save(self, path: Path) -> None:
        """Write everything to a file, for `merge` in another process."""
        attempted = np.array(sorted(self._attempted.items()), np.uint64).reshape(-1, 2)
        np.savez(
            path,
            attempted=attempted,
            puts=np.concatenate(self._puts),
            given=np.concatenate(self._given),
            out_of_order=np.array([self._out_of_order]),
        )

    def merge(self, path: Path) -> None:
        """Take over what another process saved; its incarnations are others than ours."""
        with np.load(path) as saved:
            self._attempted.update((int(key), int(upto)) for key, upto in saved["attempted"])
            self._puts.append(saved["puts"])
            self._given.append(saved["given"])
            self._out_of_order += int(saved["out_of_order"][0])

    def faults(self, published: int) -> list[str]:
        """What does not add up, when `published` messages were put and all were acked."""
        return [
            f"{what}: {len(bad)}, such as {[hex(key) for key in bad[:5]]}"
            for what, bad in self._look(published)
            if len(bad)
        ]

    def _look(self, published: int) -> Iterator[tuple[str, NDArray[Any]]]:
        puts = np.concatenate(self._puts)
        given = np.concatenate(self._given)
        given = given[np.lexsort((given["deliveries"], given["key"]))]
        key, seq, deliveries = given["key"], given["seq"], given["deliveries"]
        attempted = np.zeros(max(self._attempted) + 2, np.uint64)
        attempted[list(self._attempted)] = list(self._attempted.values())

        yield "lost", np.setdiff1d(puts["key"], key)
        producer = np.minimum(key >> 32, len(attempted) - 1)
        yield "delivered, never attempted", key[(key & 0xFFFFFFFF) >= attempted[producer]]

        again = key[1:] == key[:-1]
        yield "one message with two seqs", key[1:][again & (seq[1:] != seq[:-1])]
        yield "delivered twice with one count", key[1:][again & (deliveries[1:] == deliveries[:-1])]
        yield "delivered after an ack", key[1:][again & (given["state"][:-1] == ACKED)]
        # Whoever died in an ack may have finished the message; nothing else ends it.
        is_last = np.append(~again, True)[: len(key)]
        ended = (given["state"] == ACKING) | (given["state"] == ACKED)
        yield "gone without an ack", key[is_last & ~ended]

        # From here on one entry a message, in the order of producers and their messages.
        is_first = np.append(True, ~again)[: len(key)]
        key, seq, producer = key[is_first], seq[is_first], producer[is_first]
        same = producer[1:] == producer[:-1]
        yield "seqs that contradict a producer's order", key[1:][same & (seq[1:] <= seq[:-1])]
        yield "seqs never published", np.setdiff1d(seq, np.arange(published))
        yield "seqs never delivered", np.setdiff1d(np.arange(published), seq)

        known = np.isin(puts["key"], key)
        at = np.searchsorted(key, puts["key"][known])
        yield "put returned another seq", puts["key"][known][puts["seq"][known] != seq[at]]

        # What a producer attempted last and did not see return happened as a whole or not.
        returned = np.bincount((puts["key"] >> 32).astype(int), minlength=len(attempted))
        total = np.bincount(producer.astype(int), minlength=len(attempted))
        partial = (total != returned) & (total != attempted)
        yield "batches delivered in part, by producer", np.flatnonzero(partial)
        yield "consumers that saw new messages out of order", np.arange(self._out_of_order)


def unrest(queue: Queue) -> list[str]:
    """What is not as it must be in a queue with no message and no other living process."""
    found = []
    segments = queue._segments
    head = np.frombuffer(segments.queue_map, layout.QUEUE, 1)[0]
    group = np.frombuffer(segments.group_map, layout.GROUP, 1)[0]
    plan = segments.queue_plan
    slots = np.frombuffer(
        segments.queue_map, layout.RESERVATION, layout.RESERVATIONS, plan.reservations_at
    )
    rows = np.frombuffer(
        segments.group_map, layout.ROW, int(group["rows_used"]), segments.group_plan.rows_at
    )
    for what, segment, guard in (
        ("queue", head, queue.guard),
        ("group", group, queue._group.guard),
    ):
        if guard.mutex.holder():
            found.append(f"the {what}'s lock is held by {guard.mutex.holder()}")
        if segment["undo_count"]:
            found.append(f"the {what}'s undo log is armed")
    lent = np.count_nonzero((slots["tag"] & 0xFF) == layout.RESERVED)
    if lent:
        found.append(f"{lent} reservations of nobody")
    if np.any((rows["tag"] & 0xFF) != layout.FREE):
        found.append(f"rows in use: {np.unique(rows['tag'] & 0xFF, return_counts=True)}")
    free: list[int] = []
    link = int(group["free_head"])
    while link and len(free) <= len(rows):
        free.append(link - 1)
        link = int(rows["next"][link - 1])
    if sorted(free) != list(range(len(rows))):
        found.append(f"{len(rows)} rows, {len(set(free))} of them on the free list")
    if group["ready_head"] or group["ready_tail"]:
        found.append("the ready list is not empty")
    if group["cursor"] != head["published"] or group["finished"] != head["published"]:
        found.append(
            f"{head['published']} published, {group['cursor']} taken, {group['finished']} finished"
        )
    return found
