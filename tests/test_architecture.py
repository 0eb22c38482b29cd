"""Imports run downwards only: a module may import from the lines above its own."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = [
    {"persist.errors", "persist.format"},
    {"persist.prim"},
    {"persist.record", "persist.fields"},
    {"persist"},
    {"shmq.errors", "shmq.version"},
    {"shmq.settings", "shmq.names", "shmq.clock", "shmq.stats"},
    {"shmq.layout"},
    {"shmq.signals"},
    {"shmq.memory"},
    {"shmq.undo"},
    {"shmq.lock"},
    {"shmq.participants", "shmq.space", "shmq.ops", "shmq.lanes"},
    {"shmq.ring", "shmq.leases"},
    {"shmq.message"},
    {"shmq.consumer"},
    {"shmq.group"},
    {"shmq.producer"},
    {"shmq.queue"},
    {"shmq"},
]
LEVEL = {module: depth for depth, modules in enumerate(LAYERS) for module in modules}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path) -> set[str]:
    """The project's modules that a file imports, `from package import module` resolved."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & set(LEVEL)
            found |= inner or {node.module}
    return {name for name in found if name.split(".")[0] in {"shmq", "persist"}}


SOURCES = sorted([*ROOT.glob("persist/**/*.py"), *ROOT.glob("shmq/**/*.py")])


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_run_downwards(path: Path) -> None:
    module = module_name(path)
    assert module in LEVEL, f"{module} has no place in the order"
    for target in imports(path):
        assert LEVEL[target] < LEVEL[module], f"{module} imports {target}"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_every_module_can_be_imported_first(path: Path) -> None:
    subprocess.run([sys.executable, "-P", "-c", f"import {module_name(path)}"], check=True)
