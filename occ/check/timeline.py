"""The check of ``hoodie.properties`` and of the timeline, active and archived."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import CorruptTableError, LakeLatchError, TableNotFoundError
from ...hudi.files import not_hudi
from ...hudi.table import BACKUP_PATH, PROPERTIES_PATH, TableConfig
from ...hudi.timeline import (
    ACTIONS,
    COMMIT_ACTIONS,
    CommitMetadata,
    Instant,
    Timeline,
    decode_container,
    from_epoch_ms,
    has_archive,
    is_time,
    parse,
    parse_unknown,
    read_timeline,
)
from ...hudi.timeline import (
    History as Archive,
)
from .findings import RESTORE, ROLL_BACK, Findings

if TYPE_CHECKING:
    from ...storage import Store
    from ..entries import Commit


def archived_instants(store: Store, config: TableConfig, out: Findings) -> dict[str, Instant] | None:
    """Return the archived instants by name; None if nothing was archived, or a part of it cannot be read."""
    history = Archive(store, config.timeline_folder)
    if config.layout == 1:
        return None
    torn = list(_torn(store, history))
    for path, message in torn:
        out.add("history-torn", path, message, RESTORE)
    return None if torn or not history.manifest().version else history.instants()


def _torn(store: Store, history: Archive) -> Iterator[tuple[str, str]]:
    try:
        manifest = history.manifest()
    except CorruptTableError as e:
        yield e.path or history.folder, _what(e)
        return
    for name, size in manifest.files:
        path = f"{history.folder}/{name}"
        try:
            history.instants(first=name.partition("_")[0], last=name.partition("_")[0])
            if (there := store.head(path)) is not None and there.size != size:
                yield path, f"{path} has {there.size} bytes, manifest {manifest.version} says {size}"
        except CorruptTableError as e:
            yield e.path or path, _what(e)


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


_A_DAY_S = 86_400.0  # JVM writers may have local times
_INSTANT_LIKE = re.compile(r"[0-9]{14,17}(?:_[0-9]{14,17})?\.([a-z]+)")


@dataclass(frozen=True, slots=True)
class History:
    """The timeline with the content of its commits.

    Attributes:
        commits: T of each completed commit -> its instant.
        contents: T -> the commit's metadata; unreadable ones are missing.
        pending: T of each pending instant.
        archived: True if there is, or may be, an archive of older instants.
        history: archived instants by name, or None if not all of them are known.
    """

    timeline: Timeline
    commits: dict[str, Instant] = field(default_factory=dict)
    contents: dict[str, CommitMetadata] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    archived: bool = False
    history: dict[str, Instant] | None = None

    @property
    def first_active(self) -> str | None:
        """T of the first active instant: readers count all older files as committed."""
        return self.timeline.first_active


def check_properties(store: Store, out: Findings) -> TableConfig | None:
    """Return the table's configuration, or None if it cannot be read.

    Raises:
        TableNotFoundError: there is no table.
        UnsupportedTableError: a table version that this library cannot read.
    """
    stored = store.get(PROPERTIES_PATH)
    if stored is None:
        if not (store.folders(".hoodie") or store.list(".hoodie")):
            why, next_step = "there is no .hoodie folder", "Name the folder that holds .hoodie"
            raise TableNotFoundError(not_hudi(store, why, next_step), table=store.url)
        instead = BACKUP_PATH if store.head(BACKUP_PATH) else "a copy"
        out.add(
            "properties-damaged",
            PROPERTIES_PATH,
            f"{PROPERTIES_PATH} is missing",
            f"restore it from {instead}; if the table holds no data, delete .hoodie and create it again",
        )
        return None
    try:
        config = TableConfig.from_bytes(stored.body)
    except CorruptTableError as e:
        instead = BACKUP_PATH if store.head(BACKUP_PATH) else "a copy"
        out.add("properties-damaged", PROPERTIES_PATH, _first_sentence(e), f"restore it from {instead}")
        return None
    config.refuse_opening()
    for message in config.contradictions():
        out.add(
            "properties-contradictory", PROPERTIES_PATH, message, "correct the key that is wrong, with Hudi's own tools"
        )
    return config


def check_timeline(store: Store, config: TableConfig, out: Findings) -> History:
    """Read and check all completed instants."""
    timeline = read_timeline(store, config, tolerate_empty=True)
    _check_names(store, config, out)
    _check_times(timeline, out)
    contents: dict[str, CommitMetadata] = {}
    for instant in timeline.completed:
        path = timeline.path(instant)
        if instant in timeline.empty:
            out.add(
                "instant-empty",
                path,
                f"{path} is empty: one reader fails on it, the other takes it for no rows",
                RESTORE,
            )
        elif (content := _content(store, timeline, instant, out)) is not None:
            contents[instant.requested] = content
    _check_schema(timeline, contents, out)
    return History(
        timeline,
        {each.requested: each for each in timeline.commits},
        contents,
        frozenset(each.requested for each in timeline.pending),
        has_archive(store, config),
        archived_instants(store, config, out),
    )


def _content(store: Store, timeline: Timeline, instant: Instant, out: Findings) -> CommitMetadata | None:
    path = timeline.path(instant)
    try:
        if instant.action in COMMIT_ACTIONS:
            return timeline.metadata(instant)
        stored = store.get(path)
        if stored is not None:
            decode_container(stored.body, name=path)
    except CorruptTableError as e:
        if store.head(path) is not None:  # else it was archived since the timeline was listed
            outside = getattr(e, "outside", None)
            out.add(
                "instant-outside" if outside else "instant-torn",
                path,
                f"{path} names {outside}, outside of the table"
                if outside
                else f"{path} cannot be decoded: {_first_sentence(e)}",
                f"{RESTORE}, or rebuild it from the commit log" if timeline.config.layout == 2 else RESTORE,
            )
    return None


def check_clock(timeline: Timeline, now_s: float, out: Findings) -> None:
    """Report commits whose times are ahead of the clock, by more than time zones explain."""
    bound = from_epoch_ms(int((now_s + _A_DAY_S) * 1000))
    ahead = [each for each in timeline.commits if max(each.requested, each.completed or "") > bound]
    if ahead:
        out.add(
            "instant-ahead",
            timeline.path(ahead[0]),
            f"{len(ahead)} commits have times ahead of this clock, the first is {ahead[0].requested}: its writer's clock was "
            "wrong, or this one is. Writers of this library go on in steps of a millisecond from the newest time, and "
            "cleaning by hours goes by when such an instant was written",
            "nothing has to be done; correct that writer's clock, and write a copy of the table where its times matter",
        )


def _check_names(store: Store, config: TableConfig, out: Findings) -> None:
    for entry in store.list(config.timeline_folder):
        if unknown := parse_unknown(entry.name):
            out.add(
                "instant-unknown",
                entry.path,
                f"{entry.path} is of action {unknown.action}, which this version does not know and passes over",
                "upgrade lakelatch before it writes to this table again",
            )
        like = _INSTANT_LIKE.fullmatch(entry.name)
        if like and like[1] in ACTIONS and parse(entry.name, layout=config.layout) is None:
            form = "T_C.action" if config.layout == 2 else "T.action"
            out.add(
                "instant-misnamed",
                entry.path,
                f"{entry.name} is no name of a completed instant of table version {config.version} ({form}); "
                "readers disagree about it",
                "give it its name back, or delete it if it is a copy",
            )


def _check_times(timeline: Timeline, out: Findings) -> None:
    by_time: dict[str, str] = {}
    for instant in timeline.completed:
        path = timeline.path(instant)
        times = [instant.requested, *([instant.completed] if instant.completed else [])]
        if wrong := [each for each in times if not is_time(each)]:
            out.add("instant-times", path, f"{path} has {wrong[0]}, which is no time", "correct its name from a copy")
        elif instant.completed and instant.completed <= instant.requested:
            out.add("instant-times", path, f"{path} completed before it was requested", "correct its name from a copy")
        for label, time in zip(("requested", "completion"), times, strict=False):
            if (label, instant.action) == ("requested", "savepoint"):
                continue  # a savepoint has the time of the commit that it keeps
            other = by_time.setdefault(f"{label} {time}", path)
            if other != path and label == "requested" and instant.action == "clean" and other.endswith(".clean"):
                # A JVM that cleans executes each pending clean that it finds, also one that ours is executing.
                out.add("clean-twice", path, f"{path} and {other} complete one clean", "nothing has to be done")
            elif other != path:
                out.add(
                    "instant-twice",
                    path,
                    f"{path} and {other} have the same {label} time {time}",
                    "keep the one that the log or a copy has, delete the other",
                )


def newest_schema(timeline: Timeline, contents: dict[str, CommitMetadata]) -> tuple[str, str | None]:
    """Return the table's newest schema as Avro JSON, and the file that has it."""
    if carrying := _carrying(timeline, contents):
        return timeline.path(carrying[-1]), contents[carrying[-1].requested].schema
    return PROPERTIES_PATH, timeline.config.create_schema


def _carrying(timeline: Timeline, contents: dict[str, CommitMetadata]) -> list[Instant]:
    return [each for each in timeline.commits if each.requested in contents and contents[each.requested].schema]


def _check_schema(timeline: Timeline, contents: dict[str, CommitMetadata], out: Findings) -> None:
    from ...hudi.table import from_avro

    where, schema = newest_schema(timeline, contents)
    carrying = _carrying(timeline, contents)
    if schema is None:
        return
    try:
        columns = from_avro(schema).names
    except (LakeLatchError, ValueError, KeyError, TypeError) as e:
        out.add("schema-unreadable", where, f"the schema in {where} cannot be read: {_first_sentence(e)}", RESTORE)
        return
    _check_columns(timeline, contents, carrying, columns, out)
    try:
        timeline.config.refuse_other_columns(columns)
    except CorruptTableError as e:
        out.add("properties-contradictory", PROPERTIES_PATH, _first_sentence(e), "correct it")


def _check_columns(
    timeline: Timeline, contents: dict[str, CommitMetadata], carrying: list[Instant], columns: list[str], out: Findings
) -> None:
    """Report columns missing in the schema of the largest T, which Hudi's readers use; a smaller T may be newer (echo.py)."""
    from ...hudi.table import from_avro

    if not carrying:
        return
    last = max(carrying, key=lambda each: each.requested)
    shown = contents[last.requested].schema
    # An unreadable schema is reported once it is the newest one.
    with suppress(LakeLatchError, ValueError, KeyError, TypeError):
        if shown and (hidden := [name for name in columns if name not in from_avro(shown).names]):
            out.add(
                "columns-hidden",
                timeline.path(last),
                f"column {', '.join(hidden)} of the table is not in the schema of {last.requested}, which Hudi's readers go "
                "by: they do not show it",
                "the next commit of this library makes them show it",
            )


def _first_sentence(error: BaseException) -> str:
    return (str(error) or type(error).__name__).partition(". ")[0]
