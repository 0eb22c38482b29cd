"""Import the two packages from their .py files, even where compiled modules lie beside them.

Must be installed before either package is imported; this module imports neither.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

PACKAGES = ("persist", "shmq")


class Sources:
    """A finder that knows nothing but the sources of PACKAGES."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of PACKAGES has its source; None leaves others to the usual finders."""
        if name.partition(".")[0] not in PACKAGES:
            return None
        for place in sys.path if path is None else path:
            spec = FileFinder(place or ".", (SourceFileLoader, [".py"])).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


def install() -> None:
    """From now on PACKAGES are imported from source."""
    sys.meta_path.insert(0, Sources)
