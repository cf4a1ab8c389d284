"""The check of transactions over several tables: each prepared commit against the log of its home. Read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import LakeLatchError
from ...storage import open_beside
from ..entries import Commit, End, Prepare
from ..log import read_all
from .commit_log import LogReport
from .findings import Findings

if TYPE_CHECKING:
    from ...storage import Store


def check_several(store: Store, log: LogReport, out: Findings) -> None:
    """Report prepared commits without an outcome, and outcomes that are not those of the home."""
    by_home: dict[str, list[tuple[str, Prepare]]] = {}
    for path, prepared in log.prepared:
        by_home.setdefault(prepared.home.url, []).append((path, prepared))
    for url, found in by_home.items():
        _check_home(store, url, found, log, out)


def _check_home(store: Store, url: str, prepared: Sequence[tuple[str, Prepare]], log: LogReport, out: Findings) -> None:
    outcomes: dict[str, str] = {}
    try:
        for entry in read_all(open_beside(store, url)):
            if isinstance(entry, Commit | End):
                outcomes.setdefault(entry.instant, entry.kind)
    except LakeLatchError as e:
        out.unchecked.append(f"what {url} decided of commits over several tables ({e})")
    for path, each in prepared:
        mine, decided = log.outcome.get(each.instant), outcomes.get(each.home.instant)
        if mine == "open":
            out.add(
                "prepared",
                path,
                f"{each.instant} waits for the outcome of {each.home.instant} of {url}"
                + (f", which is {decided}" if decided else ""),
                "the next writer settles it when its coordinator is dead, or `lakelatch rollback`",
            )
        elif mine and decided and (mine in ("commit", "undone")) != (decided == "commit"):
            out.add(
                "several-differs",
                path,
                f"{each.instant} has ended here as {mine}, and {each.home.instant} of {url}, which decides, as {decided}",
                "write what is missing again, or restore both tables to a state before it",
            )
