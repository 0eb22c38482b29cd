"""Which shmq a process imports: the installed one, compiled or from its sources.

`python -m bench` puts the repository's root first on sys.path, and with it the uncompiled
source tree; that is never what is measured. The finder here answers for `persist` and `shmq`
alone: it leaves the root out, and for the interpreted build it knows only `.py` files, so the
sources installed beside the compiled modules are what runs.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

COMPILED, INTERPRETED = "compiled", "interpreted"

_ROOT = Path(__file__).resolve().parent.parent


class _Finder(MetaPathFinder):
    def __init__(self, build: str) -> None:
        self._build = build

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in ("persist", "shmq"):
            return None
        places = [place for place in path or sys.path if path or Path(place).resolve() != _ROOT]
        if self._build == COMPILED:
            return PathFinder.find_spec(fullname, places)
        for place in places:
            spec = FileFinder(place, (SourceFileLoader, [".py"])).find_spec(fullname)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def use(build: str) -> str:
    """Look for this build of shmq from now on; the one that is really there."""
    assert not {"persist", "shmq"} & set(sys.modules), "too late to choose"
    sys.meta_path.insert(0, _Finder(build))
    from persist import prim

    return COMPILED if prim.COMPILED else INTERPRETED
