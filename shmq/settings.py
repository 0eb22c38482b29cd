"""The settings of a queue: checked once, when it is made, and kept with it."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from shmq.errors import SettingsConflict

_RECORD_OVERHEAD = 256  # header, optional fields and padding, generously


@dataclass(frozen=True, slots=True)
class Settings:
    """What `open` takes as keywords at creation; times in seconds."""

    visibility: float = 30.0
    max_deliveries: int = 3
    backoff: tuple[float, float, float] = (1.0, 2.0, 60.0)
    max_message: int = 2 * 2**20
    ring_bytes: int = 16 * 2**20
    index_entries: int = 65_536
    rows: int = 65_536

    def __post_init__(self) -> None:
        problems = []
        if not 0 < self.visibility <= 43_200:
            problems.append(f"visibility={self.visibility!r} must be within 0 s and 12 h")
        if not 1 <= self.max_deliveries <= 2**31:
            problems.append(f"max_deliveries={self.max_deliveries!r} must be at least 1")
        if (
            len(self.backoff) != 3
            or self.backoff[0] < 0
            or self.backoff[1] < 1
            or self.backoff[2] < self.backoff[0]
        ):
            problems.append(f"backoff={self.backoff!r} must be (first >= 0, factor >= 1, cap)")
        if not 1 <= self.max_message <= 2**30:
            problems.append(f"max_message={self.max_message!r} must be within 1 byte and 1 GiB")
        if self.ring_bytes % 4096 or not 4096 <= self.ring_bytes <= 2**38:
            problems.append(f"ring_bytes={self.ring_bytes!r} must be a multiple of 4096")
        elif self.ring_bytes < 4 * (self.max_message + _RECORD_OVERHEAD):
            problems.append(
                f"ring_bytes={self.ring_bytes!r} must be at least 4 times "
                f"max_message={self.max_message!r} plus {_RECORD_OVERHEAD}"
            )
        for name in ("index_entries", "rows"):
            value = getattr(self, name)
            if not 2 <= value <= 2**24:
                problems.append(f"{name}={value!r} must be within 2 and 2**24")
        if problems:
            raise ValueError("; ".join(problems))

    @classmethod
    def of(cls, given: dict[str, Any]) -> "Settings":
        """Settings from keywords; TypeError names those that do not exist."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise TypeError(f"no such setting: {', '.join(unknown)}; there are {', '.join(known)}")
        values = dict(given)
        if "backoff" in values:
            values["backoff"] = tuple(float(part) for part in values["backoff"])
        if "visibility" in values:
            values["visibility"] = float(values["visibility"])
        if "max_message" in values and "ring_bytes" not in values:
            # A larger message needs a larger ring; saying so twice would be a chore.
            needed = 4 * (values["max_message"] + _RECORD_OVERHEAD)
            values["ring_bytes"] = max(known["ring_bytes"].default, -(-needed // 4096) * 4096)
        return cls(**values)

    def to_json(self) -> bytes:
        """The settings as they are kept in shared memory."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Settings":
        """The settings a queue was made with; ValueError if they make no sense."""
        values = json.loads(data)
        if not isinstance(values, dict):
            raise ValueError("settings are not an object")
        return cls.of(values)

    def check_same(self, given: dict[str, Any], queue: str) -> None:
        """SettingsConflict if a keyword says something else than the queue was made with."""
        asked = Settings.of({**dataclasses.asdict(self), **given})
        for name in given:
            mine, wanted = getattr(self, name), getattr(asked, name)
            if mine != wanted:
                raise SettingsConflict(
                    f"queue {queue!r} was made with {name}={mine!r}, opened with {wanted!r}; "
                    "leave the setting out, or delete the queue first"
                )
