"""LakeLatch lets many independent writers change one data-lake table safely.

    table = lakelatch.open("file:///data/flights")
    with table.transaction("upsert") as txn:
        ...

Names are imported when they are first used, so that ``import lakelatch`` is quick and pulls in no engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not lazy: the errors import no engine, and callers name them in except clauses.
from .errors import (
    BatchConflictError,
    BatchLandedError,
    CommitError,
    CommitStateUnknownError,
    ConfigError,
    ConflictError,
    ConstraintError,
    CorruptTableError,
    DuplicateKeyError,
    InputError,
    LakeLatchError,
    LockError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
    RolledBackError,
    StorageError,
    TableError,
    TableNotFoundError,
    TokenRegressedError,
    UnsafeStoreError,
    UnsupportedTableError,
)

if TYPE_CHECKING:
    from . import glue as glue
    from . import locks
    from . import server as server
    from . import spark as spark
    from . import testing as testing
    from .locks import lock
    from .occ.coordination import CoordinatorServer
    from .occ.entries import Settings, SettingsDict
    from .occ.liveness import MarkerServer
    from .occ.scan import Scan
    from .occ.session import CommitResult
    from .occ.table import (
        Cut,
        LocalCoordinator,
        Table,
        TableStream,
        adopt,
        create,
        read_together,
        run,
        transaction,
    )
    from .occ.table import open as open  # noqa: A004 - lakelatch.open is the name people expect
    from .occ.transaction import RunResult, SeveralTransaction, Transaction, WriteResult
    from .occ.writing import Merge, sql
    from .progress import Progress

__version__ = "0.1.0"

_PACKAGES = ("glue", "locks", "server", "spark", "testing")  # that people use without an import of their own
# Public name -> its module.
_LAZY = {
    "CommitResult": "occ.session",
    "CoordinatorServer": "occ.coordination",
    "Cut": "occ.table",
    "LocalCoordinator": "occ.table",
    "MarkerServer": "occ.liveness",
    "Merge": "occ.writing",
    "Progress": "progress",
    "RunResult": "occ.transaction",
    "Scan": "occ.scan",
    "Settings": "occ.entries",
    "SettingsDict": "occ.entries",
    "SeveralTransaction": "occ.transaction",
    "Table": "occ.table",
    "TableStream": "occ.table",
    "Transaction": "occ.transaction",
    "WriteResult": "occ.transaction",
    "adopt": "occ.table",
    "create": "occ.table",
    "lock": "locks",
    "open": "occ.table",
    "read_together": "occ.table",
    "run": "occ.table",
    "sql": "occ.writing",
    "transaction": "occ.table",
}

__all__ = [
    "BatchConflictError",
    "BatchLandedError",
    "CommitError",
    "CommitResult",
    "CommitStateUnknownError",
    "ConfigError",
    "ConflictError",
    "ConstraintError",
    "CoordinatorServer",
    "CorruptTableError",
    "Cut",
    "DuplicateKeyError",
    "InputError",
    "LakeLatchError",
    "LocalCoordinator",
    "LockError",
    "LockLostError",
    "LockTimeoutError",
    "LockUnavailableError",
    "MarkerServer",
    "Merge",
    "Progress",
    "RolledBackError",
    "RunResult",
    "Scan",
    "Settings",
    "SettingsDict",
    "SeveralTransaction",
    "StorageError",
    "Table",
    "TableError",
    "TableNotFoundError",
    "TableStream",
    "TokenRegressedError",
    "Transaction",
    "UnsafeStoreError",
    "UnsupportedTableError",
    "WriteResult",
    "adopt",
    "create",
    "lock",
    "locks",
    "open",
    "read_together",
    "run",
    "sql",
    "transaction",
]


if not TYPE_CHECKING:  # to a type checker it would make every name one of this module's

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return import_module(f".{name}", __name__)
        if name in _LAZY:
            return getattr(import_module(f".{_LAZY[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES, "__version__"})
