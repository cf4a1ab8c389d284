"""Plans of another engine, executed by ours: a compaction or clustering that a JVM writer has planned and nobody runs.

Such a plan becomes one of ours by a begin entry under its T, appended under the lock. Who executes it then is told as for
every plan. The other engine may begin to execute it as well, as it may execute ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...hudi.files import join, new_file_id
from ...hudi.timeline import decode_container, file_name
from ..entries import Begin, Commit, Content, by_partition, hold
from ..log import LogState
from . import clustering, compaction

if TYPE_CHECKING:
    from ..session import Session

_SERVICES = {"compaction": compaction.SERVICE, "clustering": clustering.SERVICE}


def taken_over(session: Session, instant: str) -> Begin | None:
    """Append the begin entry of another engine's pending plan, and return it; None if it has no such plan.

    Raises:
        InputError: it is being executed there, or is older than the epoch of the log.
    """
    if not session.settings.timeline_first:
        return None
    found = [each for each in session.log.pending(now=True) if each.requested == instant and each.action in _SERVICES]
    if not found:
        return None
    body = session.store.body(f"{session.config.timeline_folder}/{file_name(replace(found[0], state='requested'))}")
    if body is None:
        return None
    action = found[0].action
    content = _compaction(body) if action == "compaction" else _clustering(session, body)

    def build(state: LogState) -> Begin:
        _refuse_executed(session, instant)
        entries = session.log.entries()
        if state.pending and instant in state.pending:
            raise InputError(
                f"{session.url}: {action} {instant} of another engine is older than what the log remembers; run it there",
                instant=instant,
            )
        later = (each.slot for each in entries if isinstance(each, Commit) and each.completion > instant)
        return Begin(
            instant,
            action,
            _SERVICES[action].operation.hudi_name,
            session.writer,
            session.env.process(),
            plan=hold(session.store, instant, content, inline_bytes=session.inline_bytes),
            planned_at=min(later, default=session.log.next_slot),
            foreign=True,
        )

    with session.lease(f"taking over {action} {instant}"):
        begin = session.log.append(build, look=True)
    assert isinstance(begin, Begin)
    return begin


def _refuse_executed(session: Session, instant: str) -> None:
    """Raise `InputError` if the other engine has begun to execute the plan, or has ended it."""
    now = {each.state for each in session.log.pending() if each.requested == instant}
    if now != {"requested"}:
        said = "is executed there" if "inflight" in now else "has ended meanwhile"
        raise InputError(
            f"{session.url}: the plan {instant} of another engine {said}; nothing was begun", instant=instant
        )


def _compaction(body: bytes) -> Content:
    plan: dict[str, Any] = decode_container(body, "HoodieCompactionPlan", name="a compaction plan")
    groups = [
        {
            "partition": each["partitionPath"] or "",
            "file_id": each["fileId"],
            "instant": each["baseInstantTime"],
            "base": _name(each["dataFilePath"]),
            "logs": [_name(path) for path in each["deltaFilePaths"] or ()],
            "log_bytes": int((each["metrics"] or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
        }
        for each in plan["operations"] or ()
    ]
    return {"groups": groups, "slices": by_partition(_paths(groups))}


def _clustering(session: Session, body: bytes) -> Content:
    plan: dict[str, Any] = decode_container(body, "HoodieRequestedReplaceMetadata", name="a clustering plan")
    groups = list[dict[str, Any]]()
    for group in (plan["clusteringPlan"] or {}).get("inputGroups") or ():
        slices = list(group["slices"] or ())
        names = [
            _name(path) for each in slices for path in (each["dataFilePath"], *(each["deltaFilePaths"] or ())) if path
        ]
        ids = [new_file_id(session.env.uuid()) for _ in range(max(1, group["numOutputFileGroups"] or 1))]
        made: dict[str, Any] = {"partition": slices[0]["partitionPath"] or "", "files": names, "file_id": ids[0]}
        groups.append(made | ({"more_ids": ids[1:]} if ids[1:] else {}))
    return {"groups": groups, "slices": by_partition(_paths(groups))}


def _paths(groups: list[dict[str, Any]]) -> list[str]:
    found = []
    for each in groups:
        names = (*each.get("logs", ()), *each.get("files", ()), each.get("base", ""))
        found += [join(each["partition"], name) for name in names if name]
    return found


def _name(path: str | None) -> str:
    return (path or "").rpartition("/")[2]
