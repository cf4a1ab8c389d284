"""Begin requests, put beside the log by writers that lost a slot, so that the next appender begins them too. Pure.

The path of the object holds the whole wanted begin entry, so one listing gives a leader all of them. A request is
a hint: it may be lost, late, doubled, stale or hostile, and only the log says what has begun.
"""

from __future__ import annotations

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, replace
from typing import Any, Self

from ...errors import LakeLatchError
from ...hudi.timeline import COMMIT_ACTIONS, EARLIEST
from .entries import BEGUN_BY_OTHERS, Begin, asked_for
from .entry_rules import is_asked
from .operations import operation

BEGINS = ".hoodie/.lakelatch/begins"
_NAME_MAX = 800  # bytes; stores accept 1,024 for a whole path
_PART = 200  # bytes between two slashes; stores that keep objects as files accept 255
_NO_T = EARLIEST


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """A writer's request to begin.

    Attributes:
        epoch: in which its writer did not find itself. In another epoch it may have begun already, and ended.
        settled: slot of the entry whose settings its writer knows.
        at_ms: time of the request by its writer's clock, used only for a fair order.
        begin: the wanted entry, without T and slot; ``asked`` is the id by which its writer finds itself there.
    """

    epoch: int
    settled: int
    at_ms: int
    begin: Begin

    @property
    def asked(self) -> str:
        """The random id."""
        return self.begin.asked

    @property
    def path(self) -> str:
        """The path of the object, which is empty."""
        raw = {key: value for key, value in self.begin.fields().items() if key not in ("T", "asked")}
        text = json.dumps(raw, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        # URL-safe: the name must contain no slash of its own.
        told = urlsafe_b64encode(text.encode()).decode().rstrip("=")
        name = f"{self.epoch:013d}.{self.at_ms}.{self.settled}.{self.asked}.{told}"
        return "/".join([BEGINS, *(name[start : start + _PART] for start in range(0, len(name), _PART))])

    @property
    def fits(self) -> bool:
        """True if a store accepts such a name."""
        name = self.path.removeprefix(f"{BEGINS}/")
        return len(name) <= _NAME_MAX and self == BeginRequest.of(name)

    @classmethod
    def of(cls, name: str) -> Self | None:
        """Parse its path below `BEGINS`; None if it is no request, or one that nobody else may begin."""
        try:
            epoch, at_ms, settled, asked, told = name.replace("/", "").split(".")
            if len(name) > _NAME_MAX or len(epoch) != 13 or not is_asked(asked):
                return None
            text = urlsafe_b64decode(told + "=" * (-len(told) % 4)).decode()
            raw: dict[str, Any] = json.loads(text)
            # Half a surrogate pair cannot be written to the log.
            json.dumps(raw, ensure_ascii=False).encode()
            if not raw.keys() <= BEGUN_BY_OTHERS or raw["action"] not in COMMIT_ACTIONS:
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
        # Only the canonical spelling counts, so that a request has one name.
        return found if found.path == f"{BEGINS}/{name}" else None
