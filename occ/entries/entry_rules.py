"""Forms and rules of the fields of log entries: types fit, times are times, names stay inside.

An entry is a file that others may have written. Its times become names of files, its names of data files are read and
deleted, and an error in the middle of that would be unintelligible.
"""

# ruff: noqa: D103 - the name of a rule says what it asks
from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
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


def is_text(value: Any) -> bool:
    return type(value) is str


# Not `isinstance`: in Python True is an int, in JSON it is not a number.
def is_number(value: Any) -> bool:
    return type(value) is int


def is_buckets(value: Any) -> bool:
    return is_number(value) and 0 < value < 10**8


def is_flag(value: Any) -> bool:
    return type(value) is bool


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def anything(value: Any) -> bool:  # noqa: ARG001 - what reads it checks it
    return True


def or_empty(fits: Callable[[Any], object]) -> Callable[[Any], bool]:
    return lambda value: type(value) is str and (value == "" or bool(fits(value)))


def maybe(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def is_instant_time(value: Any) -> bool:
    return type(value) is str and bool(_SURELY_TIME(value) or is_time(value))


def is_action(value: Any) -> bool:
    return type(value) is str and value in _ACTIONS


def is_region(value: Any) -> bool:
    return type(value["whole_table"]) is bool and all(type(each) is str for each in value["partitions"])


def is_reservation(value: Any) -> bool:
    groups = all(len(each) == 2 and all(type(text) is str for text in each) for each in value["groups"])
    return groups and is_region(value["region"])


def are_instants(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is str and parse(each, layout=2) for each in value)


def are_times(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_instant_time, value))


def is_aside(value: Any) -> bool:
    return isinstance(value, dict) and is_side(value["path"]) and is_text(value["sha256"])


def is_content(value: Any) -> bool:
    """True for the form that `service_content.hold` leaves in an entry."""
    if isinstance(value, dict) and "side" in value:
        return is_side(value["side"]) and is_text(value["sha256"])
    return isinstance(value, dict) and isinstance(value["content"], dict)


def is_batch(value: Any) -> bool:
    try:
        return isinstance(value, list) and bool(Batch(*value))
    except (InputError, TypeError):
        return False


def are_batches(value: Any) -> bool:
    return isinstance(value, list) and all(is_batch(each[:2]) and is_instant_time(each[2]) for each in value)


def are_partners(value: Any) -> bool:
    pairs = isinstance(value, list) and all(isinstance(each, list) and len(each) == 2 for each in value)
    return pairs and all(is_text(url) and is_instant_time(instant) for url, instant in value)


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored form of a field of an entry, declared in the field's annotation; `Form` reads and writes by it.

    Attributes:
        fits: the rule for a stored value.
        key: its name in the entry; "" if that is the field's own.
        always: it is written at its default too, and an entry without it is refused. So is a field without a default.
        beside: another field: it is written whenever that one is, and else not.
        by_others: another writer may begin a transaction that has it (`BeginRequest`).
        load, dump: from the stored value, and to it; None: they are the same.
    """

    fits: Callable[[Any], bool] = anything
    key: str = ""
    always: bool = False
    beside: str = ""
    by_others: bool = False
    load: Callable[[Any], Any] | None = None
    dump: Callable[[Any], Any] | None = None


_Read = tuple[str, str, Callable[[Any], bool], Callable[[Any], Any] | None]
_Write = tuple[str, str, Callable[[Any], Any] | None]


class Form:
    """The stored fields of one kind of entry, in the order in which they are written: that of their declaration.

    Attributes:
        by_others: keys of the fields that others may write.
    """

    def __init__(self, kind: type, refuse: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        """``refuse`` checks a whole entry, after its fields."""
        self._refuse, by_others = refuse, set[str]()
        # Two tables each, with what is needed: they are gone through for every entry of the log.
        self._read_must, self._read_may = list[_Read](), list[_Read]()
        self._write_must, self._write_may = list[_Write](), list[tuple[*_Write, Any, str]]()
        for each in fields(kind):
            for stored in getattr(each.type, "__metadata__", ()):
                key = stored.key or each.name
                read, write = (each.name, key, stored.fits, stored.load), (each.name, key, stored.dump)
                if stored.always or each.default is MISSING:
                    self._read_must.append(read)
                    self._write_must.append(write)
                else:
                    self._read_may.append(read)
                    self._write_may.append((*write, each.default, stored.beside))
                by_others |= {key} if stored.by_others else set()
        self.by_others = frozenset(by_others)

    def read(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields, by name. Raise ValueError for an invalid one, KeyError if one is missing."""
        values: dict[str, Any] = {}
        for name, key, fits, load in self._read_must:
            value = raw[key]
            if not fits(value):
                raise ValueError(f"{key} is {value!r:.80}")
            values[name] = load(value) if load else value
        values["slot"] = raw["slot"]
        if not is_number(raw["slot"]):
            raise ValueError(f"slot is {raw['slot']!r:.80}")
        for name, key, fits, load in self._read_may:
            if key in raw:
                value = raw[key]
                if not fits(value):
                    raise ValueError(f"{key} is {value!r:.80}")
                values[name] = load(value) if load else value
        if self._refuse:
            self._refuse(raw)
        return values

    def write(self, entry: Any) -> dict[str, Any]:
        """Return the reverse of `read`, without the slot."""
        values: dict[str, Any] = {}
        for name, key, dump in self._write_must:
            value = getattr(entry, name)
            values[key] = dump(value) if dump else value
        for name, key, dump, default, beside in self._write_may:
            value = getattr(entry, name)
            if beside in values if beside else value is not default and value != default:
                values[key] = dump(value) if dump else value
        return values


def refuse_commit(raw: Mapping[str, Any]) -> None:
    """Raise ValueError for a commit that does not say what it did, or names a file outside of the table."""
    content, kept = raw["metadata"], (raw["metadata"] or {}).get("held")
    if content is None and raw["side"] is None:
        raise ValueError("it says nothing of what it did")
    if kept is not None and not is_content(kept):
        raise ValueError(f"held is {kept!r:.80}")
    _refuse_outside_if_any(content, kept)


def refuse_prepare(raw: Mapping[str, Any]) -> None:
    """Raise ValueError for a prepared commit that does not name its tables, of which the last decides."""
    if len(raw["commit"].get("several") or ()) < 2:
        raise ValueError("it names no tables beside its own")


def refuse_begin(raw: Mapping[str, Any]) -> None:
    """Raise ValueError for a plan that names a file outside of the table."""
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
            is_text(values["hashes"]) and values["hashes"].isascii() if "hashes" in values else is_aside(values["side"])
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
