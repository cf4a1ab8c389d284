"""Requests to begin: what who has lost a slot puts beside the log, so that whoever appends next begins it as well. Pure.

The path of the object says all of the begin entry that is wanted, so that one listing tells a leader of all of them. A request is
a hint: it may be lost, late, doubled, stale or hostile, and whether somebody has begun is said by the log alone.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from typing import Any, Self

from ...errors import LakeLatchError
from ...hudi.timeline import COMMIT_ACTIONS, EARLIEST
from .entries import Begin, asked_for
from .entry_rules import is_asked
from .operations import operation

BEGINS = ".hoodie/.lakelatch/begins"
_NAME_MAX = 800  # bytes; stores take 1,024 for a whole path
_PART = 200  # bytes between two slashes: stores that keep objects as files take 255
_NO_T = EARLIEST
_FIELDS = {"action", "op", "writer", "process", "priority", "first", "asked"}


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """Somebody wants to begin.

    Attributes:
        epoch: in which its writer has looked for itself in vain. In another one it may have begun already, and ended.
        settled: slot of the entry whose settings its writer knows.
        at_ms: when it was made, by the clock of its writer, for a fair order and nothing else.
        begin: what is to stand in the entry, but for T and slot; ``asked`` is the id by which its writer finds itself there.
    """

    epoch: int
    settled: int
    at_ms: int
    begin: Begin

    @property
    def asked(self) -> str:
        """The id, a random one."""
        return self.begin.asked

    @property
    def path(self) -> str:
        """Where it lies; the object is empty."""
        raw = {key: value for key, value in self.begin.fields().items() if key not in ("T", "asked")}
        text = json.dumps(raw, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        told = urlsafe_b64encode(text.encode()).decode().rstrip("=")
        name = f"{self.epoch:013d}.{self.at_ms}.{self.settled}.{self.asked}.{told}"
        return "/".join([BEGINS, *(name[start : start + _PART] for start in range(0, len(name), _PART))])

    @property
    def fits(self) -> bool:
        """Whether a store takes such a name."""
        name = self.path.removeprefix(f"{BEGINS}/")
        return len(name) <= _NAME_MAX and self == BeginRequest.of(name)

    @classmethod
    def of(cls, name: str) -> Self | None:
        """From its path below `BEGINS`; None for what is none, or asks for what nobody else may begin."""
        try:
            epoch, at_ms, settled, asked, told = name.replace("/", "").split(".")
            if len(name) > _NAME_MAX or len(epoch) != 13 or not is_asked(asked):
                return None
            text = urlsafe_b64decode(told + "=" * (-len(told) % 4)).decode()
            raw: dict[str, Any] = json.loads(text)
            json.dumps(raw, ensure_ascii=False).encode()  # half a character could not stand in the log
            if not raw.keys() <= _FIELDS or raw["action"] not in COMMIT_ACTIONS:
                return None
            operation(raw["op"].lower())
            found = cls(
                int(epoch),
                int(settled),
                int(at_ms),
                replace(asked_for({**raw, "asked": asked}, instant=_NO_T), slot=-1),
            )
        except (LakeLatchError, ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
            return None
        return found if found.path == f"{BEGINS}/{name}" else None
