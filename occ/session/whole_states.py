"""Past states that are whole: no cleaning has removed a file of them, or a savepoint keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ...errors import InputError
from ...hudi.timeline import MOMENT, Instant, Timeline, decode_container
from ..entries import held

if TYPE_CHECKING:
    from ...storage import Store
    from ..log import CommitLog


class Looked(Protocol):
    """The part of a session that is used here."""

    store: Store
    url: str
    writable: bool
    log: CommitLog

    def timeline(self) -> Timeline: ...


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A state that is kept until its savepoint is deleted.

    Attributes:
        instant: T of the commit whose state it is, and of the savepoint on the timeline.
        completion: C of that commit, the moment.
        shown: the savepoint's own instant.
        files: names of data files that it keeps, by partition.
    """

    instant: str
    completion: str
    shown: Instant
    by: str
    comment: str
    at_ms: int
    files: dict[str, list[str]]


def savepoints(store: Store, timeline: Timeline) -> list[Savepoint]:
    """All savepoints on the timeline, other engines' too, in order of their commits."""
    completion = {each.requested: each.completed or each.requested for each in timeline.commits}
    found = []
    for shown in timeline.completed:
        if shown.action != "savepoint" or (stored := store.get(timeline.path(shown))) is None:
            continue
        content = decode_container(stored.body, "HoodieSavepointMetadata", name=timeline.path(shown))
        files = {p: list(m["savepointDataFile"]) for p, m in content["partitionMetadata"].items()}
        # C of an archived commit is unknown; the savepoint names its files all the same.
        moment = completion.get(shown.requested, shown.requested)
        found.append(
            Savepoint(
                shown.requested,
                moment,
                shown,
                content["savepointedBy"],
                content["comments"],
                content["savepointedAt"],
                files,
            )
        )
    return sorted(found, key=lambda each: each.completion)


def kept_from(session: Looked) -> str:
    """The completion time from which on every state is whole: no cleaning was decided that removes files of one.

    Raises:
        CorruptTableError: a clean's instant cannot be decoded.
    """
    # The log first: a plan that ends before the timeline is listed is shown there.
    begun = session.log.catch_up().open.values() if session.writable else ()
    pending = [held(session.store, b.plan) for b in begun if b.action == "clean" and b.plan]
    bounds = [content["earliest"]["C"] for content in pending]
    timeline = session.timeline()
    completion = {each.requested: each.completed or each.requested for each in timeline.commits}
    for instant in timeline.pending:
        # Another engine's, or from a replaced log: it may have been executed in part.
        path = timeline.path(replace(instant, state="requested"))
        if instant.action == "clean" and (stored := session.store.get(path)) and stored.body:
            content = decode_container(stored.body, "HoodieCleanerPlan", name=path)
            first = (content.get("earliestInstantToRetain") or {}).get("timestamp", "")
            bounds.append((content.get("extraMetadata") or {}).get(MOMENT) or completion.get(first, first))
    cleans = (instant for instant in timeline.completed if instant.action == "clean")
    bounds += [cleaned_to(session.store, timeline, each, completion) for each in cleans]
    return max(bounds, default="")


def cleaned_to(store: Store, timeline: Timeline, clean: Instant, completion: Mapping[str, str]) -> str:
    """The completion time from which on that clean has left every state whole; "" if it does not say."""
    path = timeline.path(clean)
    if (stored := store.get(path)) is None or not stored.body:
        return ""
    content = decode_container(stored.body, "HoodieCleanMetadata", name=path)
    if moment := (content.get("extraMetadata") or {}).get(MOMENT):
        return str(moment)
    # Another engine's clean gives T only. It also keeps the state before that of its earliest commit. If it kept a
    # number of versions of each file instead, its newest state is whole.
    earliest: str = content["earliestCommitToRetain"]
    if not earliest and content["totalFilesDeleted"]:
        return max((each for each in completion.values() if each <= clean.requested), default="")
    first = completion.get(earliest, earliest)
    return max((each for each in completion.values() if each < first), default=first)


def refuse_cleaned(session: Looked, *, as_of: str | None = None, as_of_completion: str | None = None) -> None:
    """Raise `InputError` if files of a past state were cleaned away, or a decided cleaning will remove some.

    A state whose files were listed before this call is whole, as far as its files can still be read.

    Args:
        session: of the table.
        as_of: the state is that of the commits with requested time T up to this.
        as_of_completion: that of the commits with completion time C up to this.
    """
    kept, asked = kept_from(session), as_of or as_of_completion or ""
    if not kept:
        return
    timeline = session.timeline()
    # A file removed by a cleaning was superseded by a commit up to ``kept``. A restore may have undone some of these
    # since.
    known = (*timeline.archived_by(completed=kept), *timeline.completed_by(completed=kept))
    seen = [
        (as_of is None or each.requested <= as_of)
        and (as_of_completion is None or _completion(each) <= as_of_completion)
        for each in known
    ]
    # An archive of layout 1 is not read.
    if all(seen) and (timeline.config.layout != 1 or asked >= kept):
        return
    for each in savepoints(session.store, timeline):
        if seen == [_completion(commit) <= each.completion for commit in known]:
            return
    raise InputError(
        f"{session.url}: the state at {asked} has been cleaned; states are whole from {kept} on, and at savepoints. Choose "
        "a later one, or keep more commits when you clean",
        table=session.url,
        kept_from=kept,
    )


def _completion(commit: Instant) -> str:
    return commit.completed or commit.requested
