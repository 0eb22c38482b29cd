"""Kill a process after every store it makes: nothing is lost, doubled or left half done."""

import pytest

from tests.crash.enumeration import Report, explore, live_line
from tests.crash.operations import SETTINGS

POINTS = 100_000  # deaths, in operations and in recoveries, for each kind of queue


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_death_after_any_store_leaves_the_state_before_or_after(name: str, kind: str) -> None:
    report = Report()
    explore(name, kind, report, depth=0, steps=80)
    assert not report.broken, "\n".join(report.examples)
    assert report.points > 10_000


@pytest.mark.long
@pytest.mark.parametrize("kind", SETTINGS)
def test_a_hundred_thousand_deaths_break_nothing(name: str, kind: str) -> None:
    report = Report()
    print(f"\nevery store of every operation, {kind} messages:")
    explore(name, kind, report, depth=1, steps=1000, takeover_every=8, progress=live_line())
    print(f"\r  {report}")
    assert not report.broken, "\n".join(report.examples)
    assert report.points >= POINTS
