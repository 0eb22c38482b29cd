"""The compile switch; everything else is in pyproject.toml.

SHMQ_COMPILE=yes   compile the hot modules, fail if that fails
SHMQ_COMPILE=no    leave them as they are
SHMQ_COMPILE=auto  compile them if a C compiler is at hand (the default)

All of them or none: compiled modules share C layouts.
"""

import os
import shutil
import sysconfig

from setuptools import Extension, setup

HOT = [
    "persist.prim",
    "persist.record",
    "shmq.clock",
    "shmq.undo",
    "shmq.lock",
    "shmq.ops",
    "shmq.lanes",
    "shmq.ring",
    "shmq.leases",
    "shmq.participants",
    "shmq.message",
    "shmq.consumer",
    "shmq.group",
    "shmq.producer",
    "shmq.queue",
]


def wanted() -> bool:
    """Whether to compile."""
    choice = os.environ.get("SHMQ_COMPILE", "auto")
    if choice not in ("auto", "yes", "no"):
        raise SystemExit(f"SHMQ_COMPILE={choice!r}: yes, no or auto")
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return choice == "yes" or (choice == "auto" and shutil.which(compiler.split()[0]) is not None)


def extension(module: str) -> Extension:
    """One compiled module: prim from its twin, the others from their one source."""
    path = module.replace(".", "/")
    source = path + (".pyx" if module == "persist.prim" else ".py")
    return Extension(module, [source], depends=[path + ".pxd"], extra_compile_args=["-O2"])


setup(ext_modules=[extension(module) for module in HOT] if wanted() else [])
