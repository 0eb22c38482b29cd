"""One queue used at once by compiled and interpreted processes, killed on both sides.

The interpreted side is a process of its own that imports the same installation from its
sources and runs its own half of the storm; both halves are judged together.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import shmq
from persist import prim

from . import sources
from .accounts import unrest
from .master import Storm
from .workers import SETTINGS

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not prim.COMPILED, reason="no compiled module to mix with: interpreted"),
]

# sys.argv: the package of this file, where shmq is installed, the queue, a directory, kills.
OTHER_HALF = """
import importlib, sys
from pathlib import Path
package, home, name, directory, kills = sys.argv[1:]
importlib.import_module(package + ".sources").install()
import shmq
from persist import prim
assert not prim.COMPILED
assert Path(shmq.__file__).parent == Path(home), "not the same installation"
Storm = importlib.import_module(package + ".master").Storm
queue = shmq.open(name, durable=False, create=False)
storm = Storm(queue, Path(directory), 2, workers=2, first=1 << 18)
try:
    storm.run(int(kills))
    storm.stop_producers()
    print("quiet", flush=True)
    assert sys.stdin.readline() == "drained\\n"
    storm.stop_consumers()
    storm.ledger.save(Path(directory) / "other.npz")
    print(storm.describe(), flush=True)
finally:
    storm.kill_all()
"""


def weather(name: str, directory: Path, kills: int, report: int = 0) -> None:
    """Let both halves of a storm pass over one queue, and judge them together."""
    assert sources.__package__ is not None
    root = Path(__file__).parents[sources.__package__.count(".") + 1]
    home = Path(shmq.__file__).parent
    queue = shmq.open(name, durable=False, **SETTINGS)
    storm = Storm(queue, directory, seed=1, workers=2)
    command = f"import sys; sys.path.append({str(root)!r})\n{OTHER_HALF}"
    other = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            command,
            sources.__package__,
            home,
            name,
            directory,
            str(kills),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdin is not None
        assert other.stdout is not None
        storm.run(kills, report=report)
        storm.stop_producers()
        assert other.stdout.readline() == "quiet\n"
        storm.drain()
        other.stdin.write("drained\n")
        other.stdin.flush()
        storm.stop_consumers()
        print(f"\ncompiled: {storm.describe()}\ninterpreted: {other.stdout.readline()}", end="")
        assert other.wait(30) == 0
        with pytest.raises(shmq.QueueEmpty):
            queue.get(timeout=0.6)
        storm.ledger.merge(directory / "other.npz")
        stats = queue.stats()
        assert storm.ledger.faults(stats.puts) == []
        assert unrest(queue) == []
        assert stats.acks == stats.puts
        assert stats.attached == 1
    finally:
        storm.kill_all()
        other.communicate()  # its stdin is closed here: it then ends its own workers
        queue.close()
        shmq.delete(name, durable=False, force=True)


def test_both_builds_share_a_queue_under_kills(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, 150)


@pytest.mark.long
def test_both_builds_share_a_queue_under_2000_kills(name: str, tmp_path: Path) -> None:
    weather(name, tmp_path, 1000, report=200)
