"""Producers and consumers that are killed at random, and a count that shows nothing is lost.

Two producers put numbered messages, three consumers get, work and ack; every second or so one
of the five is killed with SIGKILL, wherever it is, and replaced. At the end the queue is
drained and the books are compared: whatever put() returned for must have been worked on.

The books are memory that outlives its writers. A producer notes a number as attempted before
put() and as returned after it; killed in between, that message may or may not be in the queue.
A consumer's work is to add one at the message's place in the ledger; if it is killed before
the ack, the message is delivered again, and worked on twice if the work was done.
"""

import argparse
import mmap
import multiprocessing
import os
import random
import shutil
import signal
import struct
import sys
import time

import shmq
from persist.prim import COMPILED

PRODUCERS, CONSUMERS = 2, 3
BODY = struct.Struct("<QQ84x")  # the producer's incarnation, the number; padded to 100 bytes
INCARNATIONS = 4096  # of producers: each counts for itself
NUMBERS = 2**22  # of one incarnation; one that gets to the end is replaced
RUNNING, STOPPING, DRAINED = range(3)
SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP  # end the demo early, in order
DRAIN_LIMIT = 30.0  # s for the end


def words(count: int) -> memoryview:
    """Numbers in memory that forked processes share."""
    return memoryview(mmap.mmap(-1, 8 * count)).cast("Q")


class Books:
    """What the processes share besides the queue."""

    def __init__(self) -> None:
        self.phase = words(1)
        self.attempted, self.returned = words(INCARNATIONS), words(INCARNATIONS)
        self.unexplained = words(CONSUMERS)
        # A byte for every message there could be; only those touched take memory.
        file = os.memfd_create("demo-ledger")
        os.ftruncate(file, INCARNATIONS * NUMBERS)
        self.ledger = mmap.mmap(file, 0)
        os.close(file)


def produce(queue: shmq.Queue, books: Books, incarnation: int) -> None:
    """Put numbered messages until told to stop."""
    with queue:
        for number in range(NUMBERS):
            if books.phase[0] != RUNNING:
                break
            books.attempted[incarnation] = number + 1
            queue.put(BODY.pack(incarnation, number))
            books.returned[incarnation] = number + 1


def consume(queue: shmq.Queue, books: Books, slot: int) -> None:
    """Get, work, ack, until the queue is drained."""
    with queue:
        while books.phase[0] != DRAINED:
            try:
                message = queue.get(timeout=0.1)
            except shmq.QueueEmpty:
                continue
            incarnation, number = BODY.unpack(message.body)
            place = incarnation * NUMBERS + number
            is_unknown = number >= books.attempted[incarnation]
            if is_unknown or (books.ledger[place] and message.deliveries == 1):
                books.unexplained[slot] += 1
            books.ledger[place] += 1  # the work
            message.ack()


class Worker:
    """One of the five places, and the process that fills it now."""

    def __init__(self, demo: "Demo", role: str, slot: int) -> None:
        self.demo, self.role, self.slot = demo, role, slot
        self.name, self.state = f"{role} {slot + 1}", "running"
        self.start()

    def start(self) -> None:
        """Fork a process; a queue opened before a fork works on both sides of it."""
        self.is_killed = False
        self.number = self.demo.incarnations if self.role == "producer" else self.slot
        self.demo.incarnations += self.role == "producer"
        self.process = multiprocessing.get_context("fork").Process(target=self.work)
        self.process.start()

    def work(self) -> None:
        """The process: deaf to Ctrl-C, which is the parent's business, and never an orphan."""
        for which in SIGNALS:
            signal.signal(which, signal.SIG_IGN)
        signal.alarm(int(self.demo.seconds + 2 * DRAIN_LIMIT))
        task = produce if self.role == "producer" else consume
        task(self.demo.queue, self.demo.books, self.number)

    def replace_if_dead(self) -> None:
        if not self.process.is_alive():
            self.check_exit()
            self.state = f"running, replaces {self.process.pid}"
            self.start()

    def check_exit(self) -> None:
        """A death that nobody ordered is a failure."""
        code, self.state = self.process.exitcode, "ended"
        if code != 0 and not (self.is_killed and code == -signal.SIGKILL):
            self.demo.failures.append(f"{self.name} exited with {code}")


class Demo:
    """The parent: keeps five workers going, kills them, shows it, and does the sums."""

    def __init__(self, queue: shmq.Queue, seconds: float, kills_per_second: float) -> None:
        self.queue, self.seconds, self.kills_per_second = queue, seconds, kills_per_second
        self.books = Books()
        self.incarnations = 0
        self.kills = {"producer": 0, "consumer": 0}
        self.failures: list[str] = []
        self.workers: list[Worker] = []
        self.started = time.monotonic()
        self.shown = (self.started, 0, 0)  # when, puts and acks then
        if sys.stdout.isatty():
            print("\n" * (2 + PRODUCERS + CONSUMERS))  # room for the block that `show` writes

    def run(self, signals: list[int]) -> None:
        """Work and kill until the time is up or a signal came; then stop and drain."""
        self.workers += [Worker(self, "producer", slot) for slot in range(PRODUCERS)]
        self.workers += [Worker(self, "consumer", slot) for slot in range(CONSUMERS)]
        producers, consumers = self.workers[:PRODUCERS], self.workers[PRODUCERS:]
        next_kill = self.started + 0.5
        while not signals and time.monotonic() < self.started + self.seconds:
            victims = [one for one in self.workers if not one.is_killed]
            if self.kills_per_second and victims and time.monotonic() >= next_kill:
                victim = random.choice(victims)
                victim.process.kill()  # in the middle of whatever it is doing
                victim.is_killed = True
                self.kills[victim.role] += 1
                next_kill += random.uniform(0.5, 1.5) / self.kills_per_second
            self.tend(self.workers)
        self.books.phase[0] = STOPPING
        deadline = time.monotonic() + DRAIN_LIMIT
        stats = self.queue.stats
        while time.monotonic() < deadline and (
            any(one.process.is_alive() for one in producers) or stats().acks < stats().puts
        ):
            self.tend(consumers)
        self.books.phase[0] = DRAINED
        for worker in self.workers:
            worker.process.join(5.0)
            worker.check_exit()
        self.show("done")

    def tend(self, workers: list[Worker]) -> None:
        """One turn of the parent: replace the dead, show how things are."""
        time.sleep(0.02)
        for worker in workers:
            worker.replace_if_dead()
        if time.monotonic() >= self.shown[0] + (0.25 if sys.stdout.isatty() else 1.0):
            self.show("draining" if self.books.phase[0] else f"of {self.seconds:g} s")

    def show(self, phase: str) -> None:
        """A block that is written over on a terminal, else one line."""
        now, stats = time.monotonic(), self.queue.stats()
        span, kills = max(now - self.shown[0], 1e-9), sum(self.kills.values())
        puts, acks = (stats.puts - self.shown[1]) / span, (stats.acks - self.shown[2]) / span
        self.shown = (now, stats.puts, stats.acks)
        lines = [
            f"{now - self.started:4.1f} s {phase}",
            f"  put/s {puts:>9,.0f}  get+ack/s {acks:>9,.0f}  ready {stats.ready:>6,}",
            f"  in flight {stats.in_flight}  redelivered {stats.died}  kills {kills}"
            f"  recoveries {stats.recoveries}",
        ]
        if not sys.stdout.isatty():
            print("".join(lines), flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        lines += [f"  {one.name}  pid {one.process.pid:<8} {one.state}" for one in self.workers]
        text = "".join(f"{line[:width]}\x1b[K\n" for line in lines)
        print(f"\r\x1b[{len(lines)}A{text}", end="", flush=True)

    def summary(self) -> bool:
        """Compare the books with what the queue says; whether everything is explained."""
        books, stats = self.books, self.queue.stats()
        returned = in_doubt = delivered = worked = lost = 0
        for incarnation in range(self.incarnations):
            start = incarnation * NUMBERS
            page = books.ledger[start : start + books.attempted[incarnation]]
            returned += books.returned[incarnation]
            in_doubt += len(page) - books.returned[incarnation]
            delivered += len(page) - page.count(0)
            worked += sum(page)
            lost += page[: books.returned[incarnation]].count(0)
        redelivered, duplicates = stats.gets - stats.puts, worked - delivered
        kills, others = self.kills, sum(books.unexplained)
        print(
            f"\nput          {stats.puts:>11,}   {returned:,} returned; {in_doubt} cut off by a "
            f"kill, of which {delivered - returned + lost} took effect\n"
            f"delivered    {delivered:>11,}   {stats.acks:,} acked\n"
            f"redelivered  {redelivered:>11,}   their consumers were killed before the ack\n"
            f"duplicates   {duplicates:>11,}   of those, worked on before; {others} others\n"
            f"kills        {sum(kills.values()):>11,}   producers {kills['producer']}, "
            f"consumers {kills['consumer']}; {stats.recoveries} half-done changes undone\n"
            f"lost         {lost:>11,}"
        )
        if not stats.puts == stats.acks == delivered:  # also if it was not drained in time
            self.failures.append("put, acked and delivered are not the same number")
        if others or not duplicates <= redelivered == stats.died <= kills["consumer"]:
            self.failures.append("a repeated delivery is not explained by a killed consumer")
        print("".join(f"FAILED: {failure}\n" for failure in self.failures), end="")
        return not (lost or self.failures)


def main() -> int:
    """0 if nothing was lost and every repetition is explained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=10, help="up to 60 (%(default)s)")
    parser.add_argument("--kills-per-second", type=float, default=1, help="up to 40 (%(default)s)")
    options = parser.parse_args()
    if not (0 < options.seconds <= 60 and 0 <= options.kills_per_second <= 40):
        parser.error("up to 60 seconds, up to 40 kills per second")
    signals: list[int] = []
    for which in SIGNALS:
        signal.signal(which, lambda number, _: signals.append(number))
    name = f"demo-{os.getpid()}"
    print(f"queue {name!r}, {'compiled' if COMPILED else 'interpreted'} build")
    queue = shmq.open(name, durable=False, max_deliveries=1000)  # deaths count as deliveries
    try:
        demo = Demo(queue, options.seconds, options.kills_per_second)
        demo.run(signals)
        return 0 if demo.summary() else 1
    finally:
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        queue.close()
        shmq.delete(name, durable=False, force=True)


if __name__ == "__main__":
    sys.exit(main())
