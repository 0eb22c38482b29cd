"""What every test gets: names of its own, a deadline, and nothing left behind."""

import faulthandler
import itertools
import os
from collections.abc import Iterator

import psutil
import pytest

from persist import prim

DEADLINE = float(os.environ.get("SHMQ_TEST_DEADLINE", "120"))  # s for one test not marked long
PREFIX = f"test-{os.getpid()}-"
_numbers = itertools.count()


def pytest_configure() -> None:
    """Refuse to test the wrong build: SHMQ_EXPECT says which one is meant."""
    expected = os.environ.get("SHMQ_EXPECT")
    found = "compiled" if prim.COMPILED else "interpreted"
    if expected and expected != found:
        raise pytest.UsageError(f"SHMQ_EXPECT={expected}, but the build installed is {found}")


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """A deadline for each test; afterwards no process, segment or semaphore may be left."""
    limit = 3600.0 if request.node.get_closest_marker("long") else DEADLINE
    faulthandler.dump_traceback_later(limit, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    children = psutil.Process().children(recursive=True)
    # By name, not by difference: another run on the same machine is none of our business.
    left = sorted(file for file in os.listdir("/dev/shm") if PREFIX in file)
    for child in children:
        child.kill()
    for file in left:
        os.unlink(f"/dev/shm/{file}")
    assert not children, f"processes left behind: {children}"
    assert not left, f"left in /dev/shm: {left}"


@pytest.fixture
def name() -> str:
    """A queue name no other test uses; more are made by appending to it."""
    return f"{PREFIX}{next(_numbers)}"
