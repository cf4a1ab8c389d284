"""All errors that this library raises on purpose.

Each class says who can fix it and whether anything landed.

    LakeLatchError
    ├─ ConfigError               the settings cannot work; change them, never retry
    ├─ InputError                the rows or names handed in cannot be stored; nothing was written
    │  └─ ConstraintError        a unique value would be duplicated, or a check broken; nothing landed
    ├─ TableError                the table is not in a state that this call can use
    │  ├─ TableNotFoundError     there is no table here
    │  ├─ CorruptTableError      it was a table; `lakelatch check` says what is broken
    │  └─ UnsupportedTableError  a sound table, but not one this library can read or write
    ├─ StorageError              the store refused or failed (no space, no permission, not reachable)
    │  └─ UnsafeStoreError       the store's conditional writes are not atomic; it must not be used
    ├─ LockError
    │  ├─ LockTimeoutError       nothing is held; safe to retry
    │  ├─ LockUnavailableError   the lock service did not answer or refused; nothing is held; safe to retry
    │  ├─ TokenRegressedError    the service's tokens went back; nothing is held; begin a new generation of tokens
    │  └─ LockLostError          was held, is not now; take it again and validate again before publishing
    └─ CommitError
       ├─ ConflictError          another writer won; nothing of ours landed; re-run the write
       │  └─ DuplicateKeyError   it inserted the same key; inserting the row again would duplicate it
       ├─ BatchConflictError     another batch of its source has landed than the one it follows
       ├─ BatchLandedError       its batch had landed before; there is nothing to do
       ├─ RolledBackError        another writer ended this transaction (its heartbeat had stopped); nothing landed
       └─ CommitStateUnknownError  the store gave no answer; check the outcome before you delete anything

``landed`` is True, False or None (unknown). ``retryable`` says whether running the same work again can help.
``docs`` is the page that says what to do about its class; a note repeats it, so that a traceback ends with it.
Errors survive pickling, because Spark ships them between processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .notebook import view
from .plain_text import visible

__all__ = [
    "BatchConflictError",
    "BatchLandedError",
    "CommitError",
    "CommitStateUnknownError",
    "ConfigError",
    "ConflictError",
    "ConstraintError",
    "CorruptTableError",
    "DuplicateKeyError",
    "InputError",
    "LakeLatchError",
    "LockError",
    "LockLostError",
    "LockTimeoutError",
    "LockUnavailableError",
    "RolledBackError",
    "StorageError",
    "TableError",
    "TableNotFoundError",
    "TokenRegressedError",
    "UnsafeStoreError",
    "UnsupportedTableError",
]


_PAGE = "docs/errors.md"  # a path in the checkout; a web address would have to exist for as long as the release does


class LakeLatchError(Exception):
    """The base class of all; ``details`` holds the facts of the message by name, and each is an attribute too.

    The annotations of a class declare its facts. A fact that an error does not have is None.
    """

    table: str | None
    instant: str | None
    path: str | None
    key: str | None
    url: str | None
    landed: ClassVar[bool | None] = False
    retryable: ClassVar[bool] = False
    docs: ClassVar[str] = f"{_PAGE}#lakelatcherror"

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.__module__ == __name__:  # a third party's class has no section there
            cls.docs = f"{_PAGE}#{cls.__name__.lower()}"

    def __init__(self, message: str, **details: Any) -> None:
        # A message is made to be printed, and holds names that others chose: control characters in them are escaped.
        super().__init__(visible(message, lines=True))
        self.details = details
        self.add_note(f"see {self.docs}")

    def about(self, url: str) -> Self:
        """Name the table in the message, unless it or another one is named there. Returns the same error."""
        if (
            "table" not in self.details
            and url not in (message := str(self))
            and url.removeprefix("file://") not in message
        ):
            self.args = (f"{visible(url)}: {message}", *self.args[1:])
            self.details["table"] = url
        return self

    if not TYPE_CHECKING:  # a type checker knows the declared facts, and marks other names

        def __getattr__(self, name: str) -> Any:
            # Called only for names that are not found otherwise. ``details`` itself is missing while unpickling.
            details = self.__dict__.get("details", {})
            if name in details or name in _declared(type(self)):
                return details.get(name)
            raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def _repr_html_(self) -> str:
        facts = [("landed", self.landed), ("a retry is safe", self.retryable), *self.details.items()]
        said = [(name.replace("_", " "), "unknown" if value is None else value) for name, value in facts]
        return view(f"{type(self).__name__}: {self.args[0]}", said)

    def __reduce__(self) -> tuple[Any, ...]:
        # `Exception` would call the class with ``args`` alone and lose the details.
        return _rebuild, (type(self), self.args[0], self.details)


@cache
def _declared(cls: type[LakeLatchError]) -> frozenset[str]:
    return frozenset(name for each in cls.__mro__ for name in get_annotations(each))


def _rebuild(cls: type[LakeLatchError], message: str, details: dict[str, Any]) -> LakeLatchError:
    return cls(message, **details)


class ConfigError(LakeLatchError):
    """The settings cannot work together or with this table."""

    allowed: Sequence[str] | None
    argument: str | None
    code: str | None
    column: str | None
    differences: dict[str, tuple[Any, Any]] | None
    expected: str | None
    extra: str | None
    folder: str | None
    host: str | None
    hosts: str | None
    isolation: str | None
    known: Sequence[str] | None
    lease_s: float | None
    lock: str | None
    max_hold_s: float | None
    merger: str | None
    missing: Any
    needed: Any
    newest: str | None
    port: int | None
    priority: int | None
    region: str | None
    schema: str | None
    scheme: str | None
    setting: str | None
    settings: list[str] | None
    strategy: str | None
    unknown: Sequence[str] | None


class InputError(LakeLatchError):
    """Rows, columns or names that the table cannot hold. Nothing was written."""

    argument: str | None
    check: str | None
    column: str | None
    columns: Sequence[str] | None
    condition: str | None
    differences: dict[str, tuple[Any, Any]] | None
    dropped: list[str] | None
    first: str | None
    group: str | None
    groups: Sequence[str] | None
    kept_from: str | None
    keys: Sequence[str] | None
    line: int | None
    lock: str | None
    merger: str | None
    names: Sequence[str] | None
    operation: str | None
    partition: Any
    partitions: Sequence[str] | None
    paths: Sequence[str] | None
    position: int | None
    pruned_to: str | None
    retyped: list[str] | None
    row: int | None
    rows: int | None
    savepoints: list[str] | None
    tables: Sequence[str] | None
    token: int | None
    type: str | None
    value: Any


class ConstraintError(InputError):
    """Rows break a unique constraint or a check. Names ``constraint`` and some ``values`` and ``keys``."""

    constraint: str | tuple[str, ...]
    values: list[tuple[Any, ...]]
    keys: list[str]


class TableError(LakeLatchError):
    """The table is not in a state that this call can use."""

    column: str | None
    keys: list[str] | None


class TableNotFoundError(TableError):
    """There is no Hudi table at this place."""

    home: str | None


class CorruptTableError(TableError):
    """A file that every reader needs is torn, missing or contradicts another."""

    bucket: int | None
    group: str | None
    kept: str | None
    lost: str | None
    outside: str | None
    partition: str | None
    paths: Sequence[str] | None
    schema: str | None
    stored: str | None


class UnsupportedTableError(TableError):
    """A sound table with a version or feature that this call does not support."""

    feature: str | None
    group: str | None
    strangers: tuple[str, ...] | None
    version: int | None


class StorageError(LakeLatchError):
    """The store refused or failed. ``outcome`` of a write is in the message."""

    errno: int | None
    folder: str | None
    kind: str | None
    retryable = True


class UnsafeStoreError(StorageError):
    """The store let several writers win one conditional write."""

    seen: str | None
    retryable = False


class LockError(LakeLatchError):
    """An error of the lease on a key; ``key`` names it."""

    code: str | None
    difference_s: float | None
    max_leases: int | None
    max_skew_s: float | None
    token: int | None
    where: str | None


class LockTimeoutError(LockError):
    """The lock was busy for the whole wait; nothing is held."""

    holder: Any
    position: int | None
    wait_s: float
    retryable = True


class LockLostError(LockError):
    """The lease ended while it was needed; ``reason`` says how."""

    cause: str | None
    reason: str
    retryable = True


class LockUnavailableError(LockError):
    """The lock service did not answer, or has no capacity; nothing is held.

    The message names the host and the failed request.
    """

    cause: str | None
    doubt: bool | None
    folder: str | None
    host: str | None
    hosts: str | None
    replicas: int | None
    throttled: bool | None
    tries: int | None
    waited_s: float | None
    wanted: int | None
    retryable = True


class TokenRegressedError(LockError):
    """The backend's tokens went back (it was rebuilt) and it cannot lift them; nothing is held.

    ``token`` is the one it would grant, ``token_above`` the requested bound. A table then begins a new generation of tokens.
    """

    token: int
    token_above: int


class CommitError(LakeLatchError):
    """An error of one transaction; ``table`` and ``instant`` name it."""

    instants: tuple[str, ...] | None


class ConflictError(CommitError):
    """Another writer won.

    ``winner``, ``winner_op``, ``winner_writer``, ``overlap`` and ``rule`` say who, with what, where and why. If it gave up
    ``early``, ``spent_s`` seconds of work were lost, and ``saved_s`` and ``saved_bytes`` of it were not done.
    """

    winner: str
    winner_op: str
    winner_writer: str
    overlap: tuple[str, ...]
    rule: str
    same_rows: int | None
    early: bool | None
    spent_s: float | None
    saved_s: float | None
    saved_bytes: int | None
    retryable = True

    @classmethod
    def without_winner(cls, message: str, rule: str, **facts: Any) -> Self:
        """Return an error that names no commit as the winner: settings have changed, or others never paused."""
        nobody = {"winner": "", "winner_op": "", "winner_writer": "", "overlap": ()}
        return cls(message, rule=rule, **(nobody | facts))


class DuplicateKeyError(ConflictError):
    """A concurrent writer inserted a key that this blind insert has too.

    Leave these rows out, or upsert them.
    """

    retryable = False


class BatchConflictError(CommitError):
    """The newest batch of its source is not the one that the batch follows: somebody else writes this source, or a restore took
    batches back. Nothing was written.

    ``source`` and ``number`` are those of the batch, ``last`` the newest number of its source (None: there is none), and
    ``instant`` the T of the commit with that number.
    """

    source: str
    number: int
    last: int | None


class BatchLandedError(CommitError):
    """The batch had landed before, so its rows are in the table; nothing was written again.

    ``source`` and ``number`` are those of the batch, ``last`` the newest number of its source, and ``instant`` the T of the
    commit with that number.
    """

    source: str
    number: int
    last: int
    landed = True


class RolledBackError(CommitError):
    """Another writer rolled the transaction back; its files are or will be deleted."""

    retryable = True


class CommitStateUnknownError(CommitError):
    """The store gave no answer to the decisive write; it may have landed or may still land."""

    landed = None
