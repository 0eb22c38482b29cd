"""Settings are checked once, kept with the queue, and not changed behind its back."""

from typing import Any

import pytest

import shmq
from shmq.settings import Settings


@pytest.mark.parametrize(
    "bad",
    [
        {"visibility": 0},
        {"visibility": -1},
        {"visibility": 50_000},
        {"max_deliveries": 0},
        {"backoff": (1.0, 0.5, 60.0)},
        {"backoff": (2.0, 2.0, 1.0)},
        {"max_message": 0},
        {"ring_bytes": 5000},
        {"ring_bytes": 8192, "max_message": 8192},
        {"rows": 1},
        {"index_entries": 0},
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(bad: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        shmq.open(name, durable=False, **bad)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"visibility.*rows"):
        Settings(visibility=0, rows=0)


def test_an_unknown_setting_is_named(name: str) -> None:
    with pytest.raises(TypeError, match="colour"):
        shmq.open(name, durable=False, colour="red")


def test_a_larger_message_brings_a_larger_ring() -> None:
    assert Settings.of({"max_message": 2**25}).ring_bytes >= 4 * 2**25


def test_an_existing_queue_keeps_its_settings(name: str) -> None:
    with shmq.open(name, durable=False, visibility=5, rows=16) as q:
        with shmq.open(name, durable=False) as again:
            assert again.settings == q.settings
        with shmq.open(name, durable=False, visibility=5.0) as again:
            assert again.settings.rows == 16
        with pytest.raises(shmq.SettingsConflict, match=r"visibility=5.0.*6.0"):
            shmq.open(name, durable=False, visibility=6)
    shmq.delete(name, durable=False)


def test_settings_read_back_as_written() -> None:
    settings = Settings.of({"visibility": 2, "backoff": [0.5, 3, 9]})
    assert Settings.from_json(settings.to_json()) == settings


def test_a_durable_queue_is_refused_by_name_until_there_is_one(name: str) -> None:
    with pytest.raises(shmq.NotDurable, match="durable=False"):
        shmq.open(name)
