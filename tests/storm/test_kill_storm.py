"""The kill storm: workers die at random instants; nothing is lost, nobody hangs."""

from pathlib import Path

import pytest

import shmq

from .accounts import unrest
from .master import Storm
from .workers import SETTINGS

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def weather(
    name: str, directory: Path, kills: int, *, with_stops: bool = False, report: int = 0
) -> None:
    """Let a storm pass over a fresh queue, and judge what it left."""
    queue = shmq.open(name, durable=False, **SETTINGS)
    storm = Storm(queue, directory, seed=kills + with_stops)
    try:
        storm.run(kills, with_stops=with_stops, report=report)
        storm.stop_producers()
        storm.drain()
        storm.stop_consumers()
        print(f"\n{storm.describe()}")
        with pytest.raises(shmq.QueueEmpty):
            queue.get(timeout=0.6)  # long enough to sweep up after the last ones
        stats = queue.stats()
        assert storm.ledger.faults(stats.puts) == []
        assert unrest(queue) == []
        assert stats.acks == stats.puts
        assert stats.dead == 0
        assert stats.attached == 1
    finally:
        storm.kill_all()
        queue.close()
        shmq.delete(name, durable=False, force=True)


def test_nothing_is_lost_when_workers_are_killed(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, 400)


def test_nothing_is_lost_when_workers_are_also_stopped(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, 200, with_stops=True)


@pytest.mark.long
def test_nothing_is_lost_in_5000_kills(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, 5000, report=500)


@pytest.mark.long
def test_nothing_is_lost_in_1000_kills_with_stops(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, 1000, with_stops=True, report=200)
