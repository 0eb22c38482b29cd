"""Names of queues and of the objects in /dev/shm that belong to them.

Checked here before any other code sees them: a NUL inside a name crashes posix_ipc, and a
slash or `..` would leave the directory. `~` is not allowed in a queue's name, so the parts
of an object's name can always be told apart.
"""

import os
import re

from shmq.errors import BadName

_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_OBJECT = re.compile(r"shmq~(\d+)~([A-Za-z0-9._-]{1,64})~queue", re.ASCII)

SHM_DIRECTORY = "/dev/shm"


def check(name: str) -> str:
    """The name itself; BadName unless it is allowed."""
    if not isinstance(name, str):
        raise BadName(f"a queue's name is a str, not {type(name).__name__}")
    if not _ALLOWED.fullmatch(name) or ".." in name:
        raise BadName(
            f"{name!r:.80} is not a queue name: 1 to 64 letters, digits, '.', '_' or '-', "
            "starting with a letter or digit, without '..'"
        )
    return name


def shared_object(queue: str, part: str) -> str:
    """The POSIX name of one part of a queue of this user: its memory or a semaphore."""
    return f"/shmq~{os.geteuid()}~{check(queue)}~{part}"


def queue_of(file: str) -> str | None:
    """The queue of this user whose main segment the file in /dev/shm is, or None."""
    match = _OBJECT.fullmatch(file)
    if match and int(match[1]) == os.geteuid():
        return match[2]
    return None
