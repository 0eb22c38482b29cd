"""A process that signals interrupt inside its calls: each strike raises, as Ctrl-C would."""

import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from persist import prim
from shmq import Message, Queue, QueueEmpty, QueueFull, StaleReceipt

from .accounts import ACKED, ACKING, GIVEN_BACK, Ledger, Page
from .workers import body, key_of, put, random_size

# How long after the start of a call a strike may come: about what calls take.
_REACH = 30e-6 if prim.COMPILED else 400e-6

Answer = TypeVar("Answer")


class Interrupted(Exception):
    """Raised by the signal handler inside a call."""


class Target:
    """Puts, gets and settles while it is being struck; its accounts are kept like a worker's.

    An interrupted put may have happened or not, exactly as one whose process was killed, so
    it ends an incarnation. An interrupted get or settlement leaves a lease that runs out.
    """

    def __init__(self, queue: Queue, seed: int, first: int, strikes_per_call: int) -> None:
        self.strikes = 0
        self._queue = queue
        self._rng = random.Random(seed)
        self._strikes_per_call = strikes_per_call
        self._left = 0  # strikes that this call will still take
        self._ledger = Ledger()
        self._next = first
        self._n = 0
        self._puts = Page()
        self._gets = Page()
        self._puts.turn(first)

    def run(self, strikes: int, seconds: float) -> None:
        """Work until that many strikes have raised inside a call; then let calls finish."""
        deadline = time.monotonic() + seconds
        for which in (signal.SIGALRM, signal.SIGINT):
            signal.signal(which, self._strike)
        while self.strikes < strikes:
            assert time.monotonic() < deadline, f"{self.strikes} strikes in {seconds} s"
            if self._rng.random() < 0.5:
                self._put()
            else:
                self._get()
        for which in (signal.SIGALRM, signal.SIGINT):
            signal.signal(which, signal.SIG_IGN)

    def save(self, path: Path) -> None:
        """Leave the accounts in a file."""
        self._ledger.add_producer(self._puts)
        self._ledger.add_consumer(self._gets)
        self._ledger.save(path)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._left:
            self._left -= 1
            self.strikes += 1
            raise Interrupted

    def _struck(self, call: Callable[[], Answer]) -> list[Answer]:
        """The call's answer alone in a list; nothing if it was interrupted."""
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + self._rng.random() * _REACH)
                self._left = self._strikes_per_call
                answer = call()
                self._left = 0
                return [answer]
            finally:
                # A second strike hits whatever cleans up after the first, or this.
                self._left = 0
        except Interrupted:
            return []

    def _put(self) -> None:
        page = self._puts
        first = page.incarnation << 32 | self._n
        count = self._rng.choice((1, 1, 1, 8))
        bodies = [body(first + i, min(random_size(self._rng), 12_000)) for i in range(count)]
        page.attempt(self._n + count)
        try:
            answer = self._struck(partial(put, self._queue, bodies, self._rng))
        except QueueFull:
            return
        for seqs in answer:
            for i, seq in enumerate(seqs):
                page.write(first + i, seq)
        self._n += count
        if not answer or page.room < 64:
            self._ledger.add_producer(page)
            self._next += 1
            self._n = 0
            page.turn(self._next)

    def _get(self) -> None:
        page = self._gets
        if page.room < 64:
            self._ledger.add_consumer(page)
            page.turn(0)
        limit = self._rng.choice((1, 1, 8))
        try:
            if limit == 1:
                messages = self._struck(partial(self._queue.get, timeout=0.01))
            else:
                many = self._struck(partial(self._queue.get_many, limit, timeout=0.01))
                messages = many[0] if many else []
        except QueueEmpty:
            return
        held = [(page.write(key_of(m), m.seq, m.deliveries), m) for m in messages]
        try:
            self._settle(held)
        except StaleReceipt:
            pass  # the lease ran out: strikes can make a call last

    def _settle(self, held: list[tuple[int, Message]]) -> None:
        choice = self._rng.random()
        if choice < 0.2:
            for entry, message in held:
                if self._struck(partial(message.nack, delay=0)):
                    self._gets.mark(entry, GIVEN_BACK)
            return
        for entry, _ in held:
            self._gets.mark(entry, ACKING)
        if choice < 0.5:
            if self._struck(partial(self._queue.ack, [message for _, message in held])):
                for entry, _ in held:
                    self._gets.mark(entry, ACKED)
            return
        for entry, message in held:
            if self._struck(message.ack):
                self._gets.mark(entry, ACKED)
