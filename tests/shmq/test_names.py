"""Names are checked before anything else sees them."""

import os

import pytest

import shmq
from shmq import names


@pytest.mark.parametrize("good", ["a", "A9", "orders", "a.b-c_d", "0", "x" * 64, "orders.dlq"])
def test_allowed_names_pass(good: str) -> None:
    assert names.check(good) == good


@pytest.mark.parametrize(
    "bad",
    ["", ".", "..", "a..b", "-a", "_a", "a/b", "/a", "a\0b", "a b", "a~b", "ä", "a\n", "x" * 65,
     "a\ud800", "\N{ARABIC-INDIC DIGIT ONE}"],
)  # fmt: skip
def test_other_names_are_refused_by_every_entry(bad: str) -> None:
    for call in (
        lambda: names.check(bad),
        lambda: shmq.open(bad, durable=False),
        lambda: shmq.delete(bad, durable=False),
        lambda: names.shared_object(bad, "queue"),
    ):
        with pytest.raises(shmq.BadName):
            call()


def test_a_name_must_be_text() -> None:
    with pytest.raises(shmq.BadName):
        names.check(b"orders")  # type: ignore[arg-type]  # the point of the test


def test_only_the_main_segment_of_this_user_is_a_queue() -> None:
    me = os.geteuid()
    assert names.queue_of(f"shmq~{me}~orders~queue") == "orders"
    assert names.queue_of(f"shmq~{me + 1}~orders~queue") is None
    assert names.queue_of(f"shmq~{me}~orders~default") is None
    assert names.queue_of(f"sem.shmq~{me}~orders~items") is None
