"""Rows of the simulation: record keys, and a column that may be unique, and what a commit tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

import pyarrow as pa

from lakelatch.conflict.write_set import NEW_KEYS
from lakelatch.occ.entries.settings import Settings
from lakelatch.occ.entries.value_hashes import FileFacts, constraint_values, hashed_keys, keys_in

from .history import State

EMAIL = ("email",)
_KEYS = tuple("klmno")
_EMAILS = tuple(f"{name}@example.org" for name in "abcdefghij")
Rows = dict[str, str]  # key, email


def rows_of(content: State, partition: str | None = None) -> Rows:
    """All rows of these lists, or of those in one partition. Keys of several partitions may be the same."""
    return {k: e for group, v in content.items() if partition in (None, group.partition) for k, e in v.rows}


def emails_of(content: State) -> set[str]:
    return {email for value in content.values() for _, email in value.rows}


def some_rows(luck: Random, taken: Iterable[str], used: Iterable[str]) -> Rows:
    """One or two rows whose keys and emails are not among these."""
    keys = sorted(set(_KEYS).difference(taken))
    emails = sorted(set(_EMAILS).difference(used))
    count = min(luck.choice((1, 1, 2)), len(keys), len(emails))
    return dict(zip(luck.sample(keys, count), luck.sample(emails, count), strict=True))


def next_email(email: str) -> str:
    """The one behind it: what an expression over a row makes of the value that it has."""
    return _EMAILS[(_EMAILS.index(email) + 1) % len(_EMAILS)]


def facts(settings: Settings, partition: str, changed: Mapping[str, str], new: Iterable[str]) -> FileFacts | None:
    """What a commit tells of a file in which these rows were written, and these of their keys are new."""
    values = {}
    keys = hashed_keys(pa.array(sorted(new), pa.string())) if settings.unique_keys else None
    if keys is not None:
        values[NEW_KEYS] = keys_in(partition, keys)
    if settings.unique_constraints and changed:
        values["email"] = constraint_values(pa.table({"email": sorted(changed.values())}), EMAIL)
    return (
        FileFacts(b"", {name: each for name, each in values.items() if each})
        if values or settings.unique_constraints
        else None
    )
