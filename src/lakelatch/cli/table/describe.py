"""``lakelatch describe``.

JSON: ``url``, ``writable``, ``properties`` (``name``, ``type``, ``version``, ``record_key``, ``partition_by``,
``ordering_field`` (of several a list), ``hive_style``, ``base_file_format``, ``metadata_table``), ``settings`` and
``lock`` (null without a commit log; ``lock`` as `locks show` prints ``holder``), ``writers`` (``instant``, ``operation``,
``writer``, ``host``, ``pid``, ``age_s``, ``beat_s``, ``state``: alive, silent or dead, ``reserved``: null or what in words,
``behind``: instants of the transactions that go first where it writes; those with reservations come first),
``size`` (``partitions``, ``file_groups``, ``current_bytes``, ``data_files``, ``bytes``), ``timeline`` (``completed``,
``pending``, ``commits``), ``not_null`` (columns that were declared so), ``dropped`` (columns whose names are taken),
``last_commit`` (null, or ``instant``, ``completion``, ``operation``, ``writer``, ``age_s``, ``empty``: it changed nothing, as
the commit that a table begins with).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..locks.holder import holder_json, holder_text
from ..options import Json, Url
from ..output import bytes_text, count_text, duration_text, print_json, print_pairs

if TYPE_CHECKING:
    from ...locks import Holder
    from ...occ.entries import Begin
    from ...occ.table import Table


def describe(url: Url, *, json: Json = False) -> None:
    """Print what a table is, who holds its lock and who writes."""
    import lakelatch

    with lakelatch.open(url) as table:
        facts = facts_of(table)
        if json:
            facts["lock"] = holder_json(facts["lock"])
            print_json(facts)
        else:
            print_pairs(_lines(table, facts))


def facts_of(table: Table) -> dict[str, Any]:
    """Return everything that is printed; ``lock`` is a `Holder`."""
    from ...hudi.files import list_data_files
    from ...occ.check import data_files
    from ...occ.session import dropped_by, required_by
    from ...occ.turns import queue

    view, timeline = table.view(), table.timeline()
    listing = list_data_files(table.store)
    groups = view.snapshot.file_slices()
    return {
        "url": table.url,
        "writable": table.writable,
        "properties": table.config.to_json(),
        "settings": table.settings.to_json() if table.writable else None,
        "lock": _holder(table) if table.writable else None,
        "writers": [_writer(table, *each) for each in queue(table.session)] if table.writable else [],
        "size": {
            "partitions": len(view.snapshot.partitions()),
            "file_groups": len(groups),
            "current_bytes": sum(
                (each.base.size if each.base else 0) + sum(log.size for log in each.logs) for each in groups
            ),
            "data_files": len(listing.bases) + len(listing.logs),
            "bytes": sum(each.size for each in data_files(listing)),
        },
        "timeline": {
            "completed": len(timeline.completed),
            "pending": len(timeline.pending),
            "commits": len(timeline.commits),
        },
        "not_null": list(required_by(view.schema)),
        "dropped": list(dropped_by(view.schema)),
        "last_commit": _last_commit(table),
    }


def _holder(table: Table) -> Holder | None:
    found = table.lock.provider()
    return found[0].inspect(found[1]) if found else None


def _writer(table: Table, begin: Begin, behind: list[str]) -> dict[str, Any]:
    from ...hudi.timeline import to_epoch_ms
    from ...occ.doctor import state_of

    now = table.env.now()
    state, beat = state_of(table.session, begin)
    return {
        "instant": begin.instant,
        "operation": begin.operation,
        "writer": begin.writer,
        "host": begin.process.host if begin.process else None,
        "pid": begin.process.pid if begin.process else None,
        "age_s": round(now - to_epoch_ms(begin.instant) / 1000, 3),
        "beat_s": None if beat is None else round(beat, 3),
        "state": state,
        "reserved": str(begin.reserved) if begin.reserved else None,
        "behind": behind,
    }


def _last_commit(table: Table) -> dict[str, Any] | None:
    from ...hudi.timeline import to_epoch_ms

    last = table.session.log.state.last if table.writable else None
    if last is not None:
        found = (last.instant, last.completion, last.operation, last.writer)
        empty = last.empty
    else:
        timeline = table.timeline()
        if not timeline.commits:
            return None
        newest = timeline.commits[-1]
        content = timeline.metadata(newest)
        found = (newest.requested, newest.completed or "", content.operation or newest.action, "")
        empty = not content.stats and not content.replaced
    instant, completion, operation, writer = found
    # Version 6 keeps the writer's local time, so an age would be a guess.
    age = round(table.env.now() - to_epoch_ms(completion) / 1000, 3) if completion else None
    return {
        "instant": instant,
        "completion": completion or None,
        "operation": operation,
        "writer": writer or None,
        "age_s": age,
        "empty": empty,
    }


def _lines(table: Table, facts: dict[str, Any]) -> list[tuple[str, str]]:
    properties, size, instants = facts["properties"], facts["size"], facts["timeline"]
    kind = f"{properties['type'].lower().replace('_', '-')}, version {properties['version']}"
    if properties["base_file_format"] != "PARQUET":
        kind += f", {properties['base_file_format']} files"
    if properties["metadata_table"]:
        kind += ", with a metadata table"
    partitions = ", ".join(properties["partition_by"]) or "not partitioned"
    if properties["hive_style"] and properties["partition_by"]:
        partitions += " (hive style)"
    sizes = (
        f"{count_text(size['partitions'], 'partition')}, {count_text(size['file_groups'], 'file group')}, "
        f"{bytes_text(size['current_bytes'])} now; {count_text(size['data_files'], 'data file')}, "
        f"{bytes_text(size['bytes'])} with older versions"
    )
    events = (
        f"{count_text(instants['commits'], 'commit')}, {count_text(instants['completed'], 'completed instant')}, "
        f"{instants['pending']} pending"
    )
    ordering = properties["ordering_field"] or []
    listed = [ordering] if isinstance(ordering, str) else ordering
    lines = [
        ("table", facts["url"]),
        ("name", f"{properties['name']} ({kind})"),
        ("record key", ", ".join(properties["record_key"]) or "none"),
        ("partitions", partitions),
        ("ordering", ", ".join(listed) or "none: the later write wins"),
        *([("not null", ", ".join(facts["not_null"]))] if facts["not_null"] else []),
        *([("dropped", ", ".join(facts["dropped"]))] if facts["dropped"] else []),
        ("size", sizes),
        ("timeline", events),
        ("last commit", _last_commit_text(facts)),
    ]
    if not facts["writable"]:
        why = "read-only: no commit log. `lakelatch adopt URL LOCK` gives it one"
        return [*lines, ("writers", _refusal(table) or why)]
    settings = facts["settings"]
    own = {"table": "in the table's own folder", "none://": "none: the log alone orders commits"}
    return [
        *lines,
        ("lock", f"{own.get(settings['lock'], settings['lock'])}; {holder_text(facts['lock'], table.env.now())}"),
        ("settings", _settings_text(settings)),
        ("writers", "\n".join(_writer_text(each) for each in facts["writers"]) or "none"),
    ]


def _settings_text(settings: dict[str, Any]) -> str:
    index = f"bucket index of {settings['bucket_count']}" if settings["bucket_count"] else "simple index"
    unique = "".join(f"unique ({', '.join(columns)}), " for columns in settings["unique_constraints"])
    unique += "".join(f"check ({sql}), " for sql in settings.get("check", ()))
    return (
        f"{settings['strategy']} strategy, {settings['isolation']} isolation, {index}, {unique}"
        f"lease {settings['lease_s']:g} s, lock wait {settings['lock_wait_s']:g} s, "
        f"heartbeat every {settings['heartbeat_interval_s']:g} s, dead after {settings['heartbeat_timeout_s']:g} s"
    )


def _refusal(table: Table) -> str:
    from ...errors import TableError

    try:
        table.config.refuse_writing()
    except TableError as e:
        return f"read-only: {e}"
    return ""


def _last_commit_text(facts: dict[str, Any]) -> str:
    last = facts["last_commit"]
    if last is None:
        return "none yet"
    by = f" by {last['writer']}" if last["writer"] else ""
    # The commit's time is of another host's clock, which may be ahead of ours.
    ago = f", {duration_text(max(last['age_s'], 0))} ago" if last["age_s"] is not None else ""
    if last["empty"] and facts["timeline"]["commits"] == 1:
        return f"none yet; created{by}{ago}"
    return f"{last['instant']} {last['operation']}{by}{ago}"


def _writer_text(writer: dict[str, Any]) -> str:
    where = f" on {writer['host']}, process {writer['pid']}" if writer["host"] else ""
    beat = f", last beat {duration_text(writer['beat_s'])} ago" if writer["beat_s"] is not None else ", no heartbeat"
    age = duration_text(max(writer["age_s"], 0))
    what = f"{writer['instant']} {writer['operation']} by {writer['writer']}{where}"
    keeps = f", has reserved {writer['reserved']}" if writer["reserved"] else ""
    waits = f", behind {', '.join(writer['behind'])}" if writer["behind"] else ""
    return f"{what}: {writer['state']}, open for {age}{beat}{keeps}{waits}"
