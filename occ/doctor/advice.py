"""Judge the facts of a table: unsafe, slow, or worth knowing, each with the command that mends it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ..entries import NO_LOCK, Settings
from ..services import Keep
from .facts import Facts

Severity = Literal["unsafe", "slow", "note"]

_HOUR_S, _DAY_S = 3600.0, 86400.0
_SMALL_MANY = 20  # small files in one partition
_LOGS_MANY = 10  # log files over one base file
_LOST_SHARE = 0.2  # of the ended transactions
_CROWD = 6  # transactions open at once
_ENDED_FEW = 20  # fewer ended transactions are no basis for a share
_STALE_S = _HOUR_S
_SAVEPOINT_OLD_S = 30 * _DAY_S
# Apache Hudi's hoodie.client.heartbeat.interval_in_ms times hoodie.client.heartbeat.tolerable.misses.
_JVM_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice. ``kind`` is stable; ``mend`` is the command that mends it, "" if there is nothing to do."""

    severity: Severity
    kind: str
    message: str
    mend: str = ""


def advise(facts: Facts) -> list[Advice]:
    """Return all findings, the unsafe first."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    if facts.settings is not None:
        found += [finding for judge in _SETTINGS for finding in judge(facts, facts.settings)]
    order = {"unsafe": 0, "slow": 1, "note": 2}
    return sorted(found, key=lambda each: order[each.severity])


# --- unsafe ------------------------------------------------------------------------------------------------------------


def _foreign(facts: Facts) -> Iterator[Advice]:
    if facts.foreign:
        yield Advice(
            "unsafe",
            "foreign-commits",
            f"another engine has committed past the log ({', '.join(facts.foreign[:3])}), so nobody compared its rows with ours",
            f"stop that writer, then: lakelatch adopt {facts.url}",
        )


def _no_files(facts: Facts) -> Iterator[Advice]:
    if facts.no_files:
        yield Advice(
            "unsafe",
            "no-file",
            f"where a file or a folder belongs stands something else, and writers stop there: {', '.join(facts.no_files[:3])}",
            f"move it out of the table, then: lakelatch check {facts.url}",
        )


def _lock_unreachable(facts: Facts) -> Iterator[Advice]:
    if facts.lock_error:
        yield Advice(
            "unsafe",
            "lock-unreachable",
            f"the lock {facts.lock} cannot be reached from here ({facts.lock_error}), so nobody here can commit",
            f"lakelatch locks check {facts.lock}",
        )


def _jvm_writers(facts: Facts, settings: Settings) -> Iterator[Advice]:
    if facts.jvm_lock and 2 * settings.heartbeat_interval_s > _JVM_TIMEOUT_S:
        yield Advice(
            "unsafe",
            "jvm-heartbeat",
            f"JVM writers share this lock and take a writer for dead that was silent for {_JVM_TIMEOUT_S:g} s; ours beat every "
            f"{settings.heartbeat_interval_s:g} s only, so one late beat lets them delete a living writer's files",
            f"lakelatch settings {facts.url} heartbeat_interval_s=10",
        )
    elif facts.jvm_lock and not settings.timeline_first:
        yield Advice(
            "note",
            "jvm-writers",
            "the lock is shared with JVM writers, which do not read the log: they may write only while no transaction of "
            "ours is open, or with neighbours=hudi",
            f"lakelatch settings {facts.url} neighbours=hudi",
        )


def _double_keys(facts: Facts, settings: Settings) -> Iterator[Advice]:
    if not settings.unique_keys and settings.bucket_count is None:
        yield Advice(
            "unsafe",
            "double-keys",
            "two writers that insert one new key at the same time both land, and the key stands twice",
            f"lakelatch settings {facts.url} unique_keys=true",
        )


# --- slow --------------------------------------------------------------------------------------------------------------


def _lock_of_one_process(facts: Facts, settings: Settings) -> Iterator[Advice]:
    if settings.lock.startswith("memory:") and facts.processes > 1:
        yield Advice(
            "slow",
            "lock-of-one-process",
            f"the lock {facts.lock} holds back nobody outside of its process, and {facts.processes} processes have written: "
            "the log keeps them apart, but they lose work",
            f"lakelatch locks set {facts.url} LOCK, one that all of them reach",
        )
    if settings.lock == NO_LOCK and facts.processes > 1:
        yield Advice(
            "slow",
            "no-lock",
            f"there is no lock, and {facts.processes} processes have written: the log orders them, at about half the rate",
            f"lakelatch locks set {facts.url} LOCK",
        )


def _crowd(facts: Facts, settings: Settings) -> Iterator[Advice]:
    led = settings.coordinator or settings.shared_with_jvm or settings.streams
    if not led and facts.crowd >= _CROWD and facts.ended >= _ENDED_FEW:
        gain = (
            "1.5 times as many on a local disk"
            if facts.url.startswith(("file:", "/"))
            else "four times as many of 16 writers"
        )
        yield Advice(
            "slow",
            "crowd",
            f"on average {facts.crowd:g} transactions were open when one committed, and waited for each other: a coordinator "
            f"commits them together ({gain}, as measured)",
            f"lakelatch server --table {facts.url} --coordinate, and its URL as the setting coordinator",
        )


def _losses(facts: Facts) -> Iterator[Advice]:
    if facts.ended >= _ENDED_FEW and facts.lost > _LOST_SHARE * facts.ended:
        yield Advice(
            "slow",
            "many-losses",
            f"{facts.lost} of the last {facts.ended} transactions lost against others, with {facts.lost_s:.0f} s of work and "
            f"{facts.lost_bytes / 1e6:.1f} MB written in vain",
            f"lakelatch why {facts.url} T, for one that `lakelatch timeline {facts.url}` shows as aborted",
        )


def _never_merged(facts: Facts, settings: Settings) -> Iterator[Advice]:
    if not settings.rebase and facts.lost:
        yield Advice(
            "slow",
            "never-merged",
            "upserts of different rows of one file group are not merged again, so one of two loses",
            f"lakelatch settings {facts.url} rebase=true",
        )


def _left_open(facts: Facts) -> Iterator[Advice]:
    for each in facts.open_work:
        what = f"{each.operation.lower()} {each.instant} of {each.writer}"
        hours = f"{each.age_s / _HOUR_S:.1f} h"
        if each.state in ("dead", "silent"):
            message = f"{what} is open, and its writer is {each.state}: old files and log entries stay because of it"
            yield Advice("slow", "dead-writer", message, f"lakelatch rollback {facts.url}")
        elif each.state == "planned" and each.age_s > _STALE_S:
            message = f"{what} has been planned for {hours} and nobody executes it: others may wait for it"
            yield Advice("slow", "stale-plan", message, f"lakelatch services execute {facts.url} {each.instant}")
        elif each.age_s > _DAY_S:
            yield Advice(
                "note", "long-transaction", f"{what} has been open for {hours}; nothing that it may read is cleaned"
            )


def _timeline(facts: Facts) -> Iterator[Advice]:
    by_itself = facts.settings.archive_above if facts.settings and not facts.jvm_lock else None
    if facts.commits > 2 * (by_itself or Keep().most):
        yield Advice(
            "slow",
            "long-timeline",
            f"the active timeline has {facts.commits} commits, and every `open` of the table lists them all",
            f"lakelatch services archive {facts.url}",
        )


def _epochs(facts: Facts, settings: Settings) -> Iterator[Advice]:
    if facts.epochs > settings.log_epochs + 2:
        yield Advice(
            "slow",
            "many-epochs",
            f"the log has {facts.epochs} epochs, though {settings.log_epochs} are to be kept",
            f"lakelatch rollback {facts.url}",
        )


def _small_files(facts: Facts) -> Iterator[Advice]:
    joinable = facts.settings is not None and facts.settings.bucket_count is None
    if joinable and facts.small >= _SMALL_MANY:
        yield Advice(
            "slow",
            "small-files",
            f"partition {facts.small_in or '(root)'} has {facts.small} small files, each of which every scan opens",
            f"lakelatch services cluster {facts.url}",
        )
    if facts.logs_max > _LOGS_MANY:
        yield Advice(
            "slow",
            "many-log-files",
            f"a file slice has {facts.logs_max} log files that every reader merges",
            f"lakelatch services compact {facts.url}",
        )


def _old_files(facts: Facts) -> Iterator[Advice]:
    if facts.data_files > 3 * facts.file_groups + 50 and facts.bytes > 3 * facts.current_bytes:
        old = facts.bytes - facts.current_bytes
        yield Advice(
            "slow",
            "old-files",
            f"{old / 1e6:.1f} MB of older versions lie beside {facts.current_bytes / 1e6:.1f} MB that readers see",
            f"lakelatch services clean {facts.url}",
        )


def _impatient(facts: Facts, settings: Settings) -> Iterator[Advice]:
    if settings.heartbeat_timeout_s < 10 and facts.hosts > 1:
        yield Advice(
            "slow",
            "impatient",
            f"a writer that is silent for {settings.heartbeat_timeout_s:g} s is rolled back, which a pause on another host "
            "may reach: its work is lost then",
            f"lakelatch settings {facts.url} heartbeat_timeout_s=60",
        )


# --- worth knowing -------------------------------------------------------------------------------------------------------


def _read_only(facts: Facts) -> Iterator[Advice]:
    if facts.refusal:
        yield Advice("note", "read-only", f"it cannot be written: {facts.refusal}")
    elif facts.settings is None:
        message = "it has no commit log, so it is read-only here, and nothing keeps its writers apart"
        yield Advice("note", "no-log", message, f"lakelatch adopt {facts.url} LOCK")


def _lagging(facts: Facts) -> Iterator[Advice]:
    if facts.lagging:
        yield Advice(
            "note",
            "lagging-log-files",
            f"{facts.lagging} file groups have rows in log files from before columns changed as hudi-rs 0.5 does not follow it: "
            "it may fail to read the table",
            f"lakelatch services compact {facts.url}",
        )


def _savepoints(facts: Facts) -> Iterator[Advice]:
    for instant, age_s in facts.savepoints:
        if age_s > _SAVEPOINT_OLD_S:
            message = f"the savepoint of {instant} keeps its files since {age_s / _DAY_S:.0f} days"
            yield Advice("note", "old-savepoint", message, f"lakelatch savepoint delete {facts.url} {instant}")


def _ahead(facts: Facts) -> Iterator[Advice]:
    if facts.ahead_s > _HOUR_S:
        yield Advice(
            "note",
            "clock-ahead",
            f"the newest commit lies {facts.ahead_s / _HOUR_S:.1f} h in the future: a writer's clock was ahead, or this one is "
            "behind",
        )


_RULES: tuple[Callable[[Facts], Iterator[Advice]], ...] = (
    _foreign, _no_files, _lock_unreachable, _losses, _left_open, _timeline, _small_files, _old_files, _read_only, _lagging,
    _savepoints, _ahead,
)  # fmt: skip
_SETTINGS: tuple[Callable[[Facts, Settings], Iterator[Advice]], ...] = (
    _jvm_writers, _double_keys, _lock_of_one_process, _crowd, _never_merged, _epochs, _impatient,
)  # fmt: skip
