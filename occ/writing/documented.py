"""Docstrings of verbs that stand twice, in a transaction and in a table: an argument is described once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])
_SECTION = re.compile(r"^(Args|Returns|Raises):\n", re.MULTILINE)
_AS_IN = re.compile(r"^    (\w+): as in `\w+`\.", re.MULTILINE)
_OF_A_TABLE = {
    "Args": """\
    retries: the bounds of `run` (``attempts``, ``timeout_s`` and ``lost_work_max_s`` in seconds, ``backoff_s``), its
        ``isolation``, ``reserve``, ``reserve_after``, ``batch`` and ``note``; and ``progress``, called with a `Progress`
        for each file written, an exception in which rolls the write back.
""",
    "Returns": """\
    The commit as a `WriteResult`: its numbers of rows, files and attempts, T and C. ``repeated`` is True if its ``batch``
    was committed before; nothing was written then.
""",
    "Raises": """\
    ConflictError: the last attempt's, when the bounds are reached.
""",
}


def _sections(method: Callable[..., Any]) -> dict[str, str]:
    opening, *rest = _SECTION.split(inspect.getdoc(method) or "")
    return {"": opening.strip() + "\n"} | {
        name: body.rstrip() + "\n" for name, body in zip(rest[::2], rest[1::2], strict=True)
    }


def _entries(body: str) -> dict[str, str]:
    return {
        entry.partition(":")[0].strip(): entry for entry in re.split(r"^(?=    \S)", body, flags=re.MULTILINE) if entry
    }


def _text(sections: dict[str, str]) -> str:
    named = [f"{name}:\n{sections[name]}" for name in ("Args", "Returns", "Raises") if sections.get(name)]
    return "\n".join([sections[""], *named])


def _known(entries: dict[str, str], found: re.Match[str]) -> str:
    return entries[found[1]].rstrip()


def like(model: Callable[..., Any]) -> Callable[[Method], Method]:
    """Put the model's entries where the docstring of a verb says ``NAME: as in `model`.``."""

    def complete(method: Method) -> Method:
        sections, models = _sections(method), _sections(model)
        for name in ("Args", "Raises"):
            known = _entries(models.get(name, ""))
            sections[name] = _AS_IN.sub(partial(_known, known), sections.get(name, ""))
        method.__doc__ = _text(sections)
        return method

    # Without docstrings under ``python -OO``.
    return complete if model.__doc__ else lambda method: method


def retried(verb: Callable[..., Any]) -> Callable[[Method], Method]:
    """Complete a table's verb by the transaction's: its arguments and errors, and those of a write that is run again."""

    def complete(method: Method) -> Method:
        own, theirs = _sections(method), _sections(verb)
        more = theirs[""].partition("\n\n")[2]  # below the summary, which each verb has of its own
        sections = {"": own[""] + (f"\n{more}" if more and "\n\n" not in own[""] else "")}
        for name in ("Args", "Raises"):
            sections[name] = own.get(name, "") + theirs.get(name, "") + _OF_A_TABLE[name]
        sections["Returns"] = own.get("Returns") or _OF_A_TABLE["Returns"]
        method.__doc__ = _text(sections)
        return method

    return complete if verb.__doc__ else lambda method: method
