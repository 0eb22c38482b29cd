"""The enumeration has teeth: each planted mistake is found by it, the product as it is passes.

A mutant is one textual replacement in a copy of the interpreted product; the enumeration
runs on the copy in a process of its own, up to the first broken point.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import persist
import shmq

BROKEN = 3  # what enumeration.main answers when it found a broken point


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str


_APPEND_STORES = """\
        memory.store(_TAIL, position + size)
        memory.store(_LANE_NEXT, ordinal + 1)
"""
_PUBLISH = "        memory.store(_PUBLISHED, seq + 1)\n"
_PLACE = "        self._lane.place(ordinal, seq, position, size, timestamp)\n"
_BEGIN_PUT = """\
        undo.begin()
        undo.commit_by(_PUBLISHED, seq + 1)
"""
_ARM = "        undo.arm()\n"
_TAKE_STORES = """\
        memory.store(_FREE_HEAD, free)
        memory.store(_ROWS_USED, used)
        memory.store(_CURSOR, cursor + count)
"""

MUTANTS = [
    # A death between the changes finds nothing to undo.
    Mutant(
        "arms nothing",
        "shmq/undo.py",
        "        self._memory.store(self._at, ((self._next - self._first) >> 1) + 1)\n",
        "        pass\n",
    ),
    # The lane would have an entry more than messages were published.
    Mutant(
        "put stores before arming",
        "shmq/ring.py",
        _ARM + _APPEND_STORES,
        _APPEND_STORES + _ARM,
    ),
    # The count is cleared, half of the changes stay.
    Mutant("undo skipped", "shmq/undo.py", "memory.store(index, memory.load(entry + 1))", "pass"),
    # One noted word keeps its new value. (Merely restoring in another order is no mistake:
    # every word is noted before the first change, so all notes of a word say the same.)
    Mutant(
        "undo skips the first entry",
        "shmq/undo.py",
        "        while entry > at + _ENTRIES:\n",
        "        while entry > at + _ENTRIES + 2:\n",
    ),
    # A death in the recovery leaves the rest of the entries unrestored for ever.
    Mutant(
        "undo disarms first",
        "shmq/undo.py",
        "        while entry > at + _ENTRIES:\n",
        "        memory.store(at, 0)\n        while entry > at + _ENTRIES:\n",
    ),
    # Leased rows whose messages the cursor has not passed: delivered twice.
    Mutant(
        "get commits early",
        "shmq/leases.py",
        _TAKE_STORES + "        undo.commit()\n",
        "        undo.commit()\n" + _TAKE_STORES,
    ),
    # Published counts as committed, but the tail still lies before the record.
    Mutant(
        "published before the tail",
        "shmq/ring.py",
        _APPEND_STORES + _PUBLISH,
        _PUBLISH + _APPEND_STORES,
    ),
    # A message is published that no entry leads to.
    Mutant(
        "entry after publication",
        "shmq/ring.py",
        _PLACE + _BEGIN_PUT + _ARM + _APPEND_STORES + _PUBLISH,
        _BEGIN_PUT + _ARM + _APPEND_STORES + _PUBLISH + _PLACE,
    ),
    # Rolled back after others could see the message: the tail and the lane do not fit.
    Mutant(
        "put without a commit word",
        "shmq/ring.py",
        _BEGIN_PUT + _ARM + _APPEND_STORES,
        "        undo.begin()\n" + _ARM + _APPEND_STORES,
    ),
    # The word that committed the last put seems to commit the next transaction.
    Mutant(
        "commit word left over",
        "shmq/undo.py",
        "            self._memory.store(self._at + _COMMIT_INDEX, 0)",
        "            pass",
    ),
    # The row stays free, which it is on no list, and its message is gone.
    Mutant(
        "ack does not note the row",
        "shmq/leases.py",
        "            undo.note(self._rows_at + row * _ROW_WORDS)",
        "            pass",
    ),
    Mutant(
        "ack of many notes one row",
        "shmq/leases.py",
        "            undo.note(self._rows_at + row * _ROW_WORDS)",
        "            n or undo.note(self._rows_at + row * _ROW_WORDS)",
    ),
    # The list's last row leads on to one that is not on it.
    Mutant(
        "nack does not note the last row's link",
        "shmq/leases.py",
        "            self._undo.note(self.row_at(last - 1) + _NEXT)\n",
        "            pass\n",
    ),
    # The tail, the lane, the cursor and the lists keep their new values.
    Mutant(
        "undo forgets the control line",
        "shmq/undo.py",
        "            memory.store(self._line + n, memory.load(at + _LINE + n))",
        "            pass",
    ),
    # What is put back is the line of an earlier transaction.
    Mutant("the control line is not saved", "shmq/undo.py", "        self._snapshot.save()\n", ""),
    # The space is free while its message was never published.
    Mutant(
        "publish does not note the slot",
        "shmq/ring.py",
        "        undo.note(at)\n        undo.note(at + _SLOT_ORDINAL)\n",
        "        undo.note(at + _SLOT_ORDINAL)\n",
    ),
    # Leases of an owner whom nobody will look for any more.
    Mutant(
        "sweep forgets the dead first",
        "shmq/group.py",
        "        returned = 0\n",
        "        returned = 0\n        self._queue.bury(dead)\n",
    ),
    Mutant(
        "close leaves first",
        "shmq/queue.py",
        "            self._group.hand_back(self._owner)\n",
        "            self._leave(self._owner)\n            self._group.hand_back(self._owner)\n",
    ),
]


def _enumerate(directory: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.enumeration", name],
        cwd=directory,
        env={"PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The interpreted product and this harness, to be changed at will."""
    for package in (persist, shmq):
        assert package.__file__ is not None
        source = Path(package.__file__).parent
        (tmp_path / source.name).mkdir()
        for file in source.glob("*.py"):
            shutil.copy(file, tmp_path / source.name)
    (tmp_path / "tests" / "crash").mkdir(parents=True)
    for file in Path(__file__).parent.glob("*.py"):
        shutil.copy(file, tmp_path / "tests" / "crash")
    return tmp_path


def test_the_product_as_it_is_passes(copy: Path, name: str) -> None:
    done = _enumerate(copy, name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_mistake_is_found(copy: Path, name: str, mutant: Mutant) -> None:
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, "the product changed: adapt the mutant"
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    done = _enumerate(copy, name)
    assert done.returncode == BROKEN, done.stdout + done.stderr
    assert "after store" in done.stdout
