"""The rules for log entries: fields have their types, times are times, names stay inside the table.

An entry is a file that others may have written. Its times become names of files, its names of data files are read and
deleted, and an error in the middle of that would be unintelligible.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ...errors import InputError
from ...hudi.files import join, lies_outside
from ...hudi.timeline import ACTIONS, is_time, parse
from .batches import Batch
from .side_objects import is_side

# Avoids parsing the date on all but a few days of a month: every entry that is read has one or two times.
_SURELY_TIME = re.compile(
    r"(?!0000)[0-9]{4}(?:0[1-9]|1[0-2])(?:0[1-9]|1[0-9]|2[0-8])(?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9][0-9]{3}"
).fullmatch
_ACTIONS = ACTIONS | {"archive"}
is_asked = re.compile(r"[0-9a-f]{32}").fullmatch  # the id of a request to begin
_TEXTS = ("file_id", "path", "partition", "prev_commit", "prev_base_file", "base_file")
_NUMBERS = (
    "num_writes",
    "num_inserts",
    "num_updates",
    "num_deletes",
    "total_write_bytes",
    "file_size",
    "errors",
    "log_version",
    "log_offset",
    "min_event_time",
    "max_event_time",
)
_OF_A_FILE: dict[str, type] = (
    dict.fromkeys(_TEXTS, str) | dict.fromkeys(_NUMBERS, int) | {"log_files": list, "columns": dict}
)
_MAY_BE_NONE = {"operation", "schema", "log_files", *_TEXTS[4:], *_NUMBERS[7:]}
_OF_ALL: dict[str, type] = {"operation": str, "schema": str, "extra": dict, "compacted": bool, "unique": dict}


def _text(value: Any) -> bool:
    return type(value) is str


# Not `isinstance`: in Python True is an int, in JSON it is not a number.
def _number(value: Any) -> bool:
    return type(value) is int


def _maybe(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _time(value: Any) -> bool:
    return type(value) is str and bool(_SURELY_TIME(value) or is_time(value))


def _action(value: Any) -> bool:
    return type(value) is str and value in _ACTIONS


def _region(value: Any) -> bool:
    return type(value["whole_table"]) is bool and all(type(each) is str for each in value["partitions"])


def _reserved(value: Any) -> bool:
    groups = all(len(each) == 2 and all(type(text) is str for text in each) for each in value["groups"])
    return groups and _region(value["region"])


def _asked(value: Any) -> bool:
    return type(value) is str and (value == "" or is_asked(value) is not None)


def _instants(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is str and parse(each, layout=2) for each in value)


def _aside(value: Any) -> bool:
    return isinstance(value, dict) and is_side(value["path"]) and _text(value["sha256"])


def _held(value: Any) -> bool:
    """True for the form that `service_content.hold` leaves in an entry."""
    if isinstance(value, dict) and "side" in value:
        return is_side(value["side"]) and _text(value["sha256"])
    return isinstance(value, dict) and isinstance(value["content"], dict)


def _batch(value: Any) -> bool:
    try:
        return isinstance(value, list) and bool(Batch(*value))
    except (InputError, TypeError):
        return False


def _batches(value: Any) -> bool:
    return isinstance(value, list) and all(_batch(each[:2]) and _time(each[2]) for each in value)


_Tests = dict[str, Callable[[Any], bool]]
_TRANSACTION: _Tests = {"T": _time, "slot": _number}
_BEGIN = _TRANSACTION | {"action": _action, "op": _text, "writer": _text}
_BEGIN_MAY = {
    "priority": _number,
    "plan": _maybe(_held),
    "planned_at": _number,
    "first": _maybe(_number),
    "executes": lambda value: type(value) is bool,
    "reserved": _maybe(_reserved),
    "asked": _asked,
}
_COMMIT = _BEGIN | {
    "C": _time,
    "token": _number,
    "region": _maybe(_region),
    "schema": _maybe(_text),
    "metadata": _maybe(lambda value: isinstance(value, dict)),
    "side": _maybe(_aside),
}
_COMMIT_MAY: _Tests = {
    "blind": lambda value: type(value) is bool,
    "undone": _instants,
    "named": lambda value: value == "" or _time(value),
    "echo": lambda value: value == "" or _instants([value]),
    "batch": _batch,
    "standing": _batches,
}
_SEVERAL: _Tests = {
    "slot": _number,
    "members": lambda value: isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value),
}
_END = _TRANSACTION | {"who": _text, "reason": _text}
_END_MAY = {"lost": _maybe(lambda value: isinstance(value, dict))}  # `Loss.from_json` checks the rest
_FIELDS: dict[str, tuple[_Tests, _Tests]] = {
    "begin": (_BEGIN, _BEGIN_MAY),
    "begins": (_SEVERAL, {}),
    "commit": (_COMMIT, _COMMIT_MAY),
    "commits": (_SEVERAL, {}),
    "import": (_SEVERAL, {}),
    "rollback": (_END, _END_MAY),
    "abort": (_END, _END_MAY),
    "setting": ({"slot": _number, "who": _text}, {}),
    "close": ({"slot": _number}, {}),
    "open": ({"slot": _number, "top": _time, "token": _number}, {"schema": _text, "batches": _batches}),
}


def refuse_strange(kind: str, raw: Mapping[str, Any]) -> None:
    """Raise ValueError for an entry with an invalid field; KeyError if it lacks a field."""
    must, may = _FIELDS[kind]
    for name, fits in must.items():
        if not fits(raw[name]):
            raise ValueError(f"{name} is {raw[name]!r:.80}")
    for name, fits in may.items():
        if name in raw and not fits(raw[name]):
            raise ValueError(f"{name} is {raw[name]!r:.80}")
    if kind == "commit":
        content, kept = raw["metadata"], (raw["metadata"] or {}).get("held")
        if content is None and raw["side"] is None:
            raise ValueError("it says nothing of what it did")
        if kept is not None and not _held(kept):
            raise ValueError(f"held is {kept!r:.80}")
        _refuse_outside_if_any(content, kept)
    elif kind == "begin":
        _refuse_outside_if_any(None, raw.get("plan"))


def _refuse_outside_if_any(content: Mapping[str, Any] | None, kept: Mapping[str, Any] | None) -> None:
    """Check only what is there: most entries keep no content of a service, and every writer reads all entries."""
    if content:
        refuse_outside(content)
    if kept and (more := kept.get("content")):
        refuse_outside(more)


def content_of(body: bytes) -> dict[str, Any]:
    """Decode the content of a side object. Raises ValueError if it is unintelligible."""
    try:
        content: dict[str, Any] = json.loads(body)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    refuse_outside(content)
    return content


def refuse_outside(content: Any) -> None:
    """Raise ValueError if a content (`service_content`, `CommitMetadata.to_json`) names a file outside of the table."""
    try:
        for path in _places(content):
            if lies_outside(path):
                raise ValueError(f"it names {path!r}, which does not lie in the table")
    except (AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"what it names is not understood ({error!r:.80})") from error


def _refuse_kinds(fields: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    for name, value in fields.items():
        kind = kinds.get(name)
        if kind is not None and type(value) is not kind and (value is not None or name not in _MAY_BE_NONE):
            raise TypeError(f"{name} is {value!r:.40}")


def _places(content: Mapping[str, Any]) -> Iterator[str]:
    _refuse_kinds(content, _OF_ALL)
    for stat in content.get("stats", ()):
        _refuse_kinds(stat, _OF_A_FILE)
        path, partition, _ = stat["path"], stat["partition"], stat["file_id"]
        yield path
        yield from stat.get("log_files") or ()
        # The path covers its partition, unless the two disagree; then the partition is checked by itself.
        if not path.startswith(partition):
            yield join(partition, "any")
    if not all(type(each) is str for each in content.get("extra", {}).values()):
        raise TypeError("extra")
    for name, values in content.get("unique", {}).items():
        if not all(type(text) is str for low, high in values["spans"].values() for text in (low, high)) or not (
            _text(values["hashes"]) and values["hashes"].isascii() if "hashes" in values else _aside(values["side"])
        ):
            raise TypeError(name)
    for partition, ids in content.get("replaced", {}).items():
        yield from _in(partition, ("any", *ids))
    for partition, names in content.get("slices", {}).items():
        yield from _in(partition, names)
    for group in content.get("groups", ()):
        ids = (group["file_id"], *group.get("more_ids", ()))
        yield from _in(group["partition"], (*ids, *group.get("files", ()), *group.get("logs", ())))
        yield from _in(group["partition"], [name for name in (group.get("base"),) if name])


def _in(partition: str, names: Collection[str]) -> Iterator[str]:
    # With a slash in it a name could lead out of its partition.
    if not all(type(name) is str and "/" not in name for name in names):
        raise TypeError(names)
    yield from (join(partition, name) for name in names)
