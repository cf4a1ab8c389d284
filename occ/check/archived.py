"""The check of the archived timeline: it is whole, and each commit is archived or active, but not both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...errors import CorruptTableError
from ...hudi.timeline import COMMIT_ACTIONS, History, Instant
from .findings import RESTORE, ROLL_BACK, Findings

if TYPE_CHECKING:
    from ...hudi.table import TableConfig
    from ...storage import Store
    from ..entries import Commit


def archived_instants(store: Store, config: TableConfig, out: Findings) -> dict[str, Instant] | None:
    """Return the archived instants by name; None if nothing was archived, or a part of it cannot be read."""
    history = History(store, config.timeline_folder)
    if config.layout == 1:
        return None
    torn = list(_torn(store, history))
    for path, message in torn:
        out.add("history-torn", path, message, RESTORE)
    return None if torn or not history.manifest().version else history.instants()


def _torn(store: Store, history: History) -> Iterator[tuple[str, str]]:
    try:
        manifest = history.manifest()
    except CorruptTableError as e:
        yield e.path, _what(e)
        return
    for name, size in manifest.files:
        path = f"{history.folder}/{name}"
        try:
            history.instants(first=name.partition("_")[0], last=name.partition("_")[0])
            if (there := store.head(path)) is not None and there.size != size:
                yield path, f"{path} has {there.size} bytes, manifest {manifest.version} says {size}"
        except CorruptTableError as e:
            yield e.path, _what(e)


def _what(error: CorruptTableError) -> str:
    return str(error).partition(": ")[2].partition("; ")[0]


def check_archived(
    store: Store,
    config: TableConfig,
    archived: dict[str, Instant] | None,
    first_active: str | None,
    landed: Sequence[Commit],
    out: Findings,
) -> None:
    """Compare the archive with the active timeline and with ``landed``, the commits of the log."""
    if archived is None:
        return
    names = set(store.names(config.timeline_folder))
    commits = {name: each for name, each in archived.items() if each.action in COMMIT_ACTIONS}
    gone = max((each.requested for name, each in commits.items() if name not in names), default="")
    for name in sorted(names & commits.keys()):
        late = commits[name].requested < gone
        out.suspect(
            "archived-late" if late else "archived-twice",
            f"{config.timeline_folder}/{name}",
            f"{name} is archived and on the active timeline"
            + (
                ", so that other engines' readers miss archived commits after it: its publisher was late"
                if late
                else ""
            ),
            ROLL_BACK,
        )
    undone = {name for commit in landed for name in commit.undone if commit.restores}
    for commit in landed:
        names_of = commit.published if commit.action in COMMIT_ACTIONS else ()
        old = {name for name in names_of if name.partition("_")[0] < (first_active or "")}
        if not old <= names | archived.keys() | undone:
            out.add(
                "history-lacks",
                f"{config.timeline_folder}/history",
                f"commit {commit.instant} of the log is neither on the active timeline nor archived: incremental readers that "
                "begin before it miss it",
                RESTORE,
            )
