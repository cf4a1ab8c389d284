"""What has its own model beside the commit protocol: rebase, reservations, lock change, neighbours, coordinators and what they
may tell, several tables.

Each takes the log for one list whose entries are decided at their slots. That it is, whatever is lost, late, repeated or
deleted, is what the searches of `cases` show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from . import begins, confirmation, coordinator, lock_change, neighbours, rebase, reservation, several_tables
from .explore import Result, explore


class Feature(NamedTuple):
    """A model, its rules, and what is searched with all of them on (``wide``: by hand only)."""

    model: Callable[[Any, Any], Any]
    rules: type[Any]
    sound: dict[str, Any]
    wide: dict[str, Any]


@cache
def _search(feature: str, rules: Any, bounds: Any) -> Result:
    model: Any = FEATURES[feature].model(rules, bounds)
    return explore(model, goals=model.goals())


def search(feature: str, bounds: Any, **rules: object) -> Result:
    """Every state within the bounds, with some rules changed."""
    return _search(feature, replace(FEATURES[feature].rules(), **rules), bounds)


class Missing(NamedTuple):
    """A rule that is left out or another one in its place, and the fault that follows."""

    feature: str
    rule: str
    traps: str
    bounds: Any
    fault: str
    instead: object = False
    besides: dict[str, object] = {}  # noqa: RUF012 - never changed
    """Other rules, under which this one makes the difference."""

    def search(self, *, with_rule: bool = False) -> Result:
        """The search without the rule, or with it and all else the same."""
        rules = self.besides if with_rule else {**self.besides, self.rule: self.instead}
        return search(self.feature, self.bounds, **rules)


def apart(*pairs: tuple[int, int]) -> frozenset[frozenset[int]]:
    """Pairs of writers that do not overlap."""
    return frozenset(frozenset(pair) for pair in pairs)


def overlapping(*pairs: tuple[int, int]) -> frozenset[tuple[int, int]]:
    """Pairs of writers each of which must have seen the other, if that one lands first."""
    return frozenset(each for a, b in pairs for each in ((a, b), (b, a)))


_Rebase, _Reserve, _Lock, _Beside = rebase.Bounds, reservation.Bounds, lock_change.Bounds, neighbours.Bounds
_Begins, _Confirm, _Several = begins.Bounds, confirmation.Bounds, several_tables.Bounds
_Led, _NONE, _TWO = coordinator.Bounds, overlapping(), frozenset((0, 1))

FEATURES: dict[str, Feature] = {
    "rebase": Feature(
        rebase.Rebase,
        rebase.Rules,
        {
            "a rebaser, two cleanings": _Rebase(sweeps=2),
            "two rebasers, two cleanings": _Rebase(rebasers=2, sweeps=2),
            "a second attempt of a task, a cleaning": _Rebase(ghost=True, sweeps=1),
            "a second attempt, and nothing may be left to merge": _Rebase(ghost=True, void=True),
            "three writers, two of them rebase, two rounds": _Rebase(writers=3, rebasers=2),
            "three rebasers, one round": _Rebase(writers=3, rebasers=3, rounds=1),
            "a rebaser, a writer, an overwriter": _Rebase(writers=3, rounds=1, overwriter=True),
            "an overwriter, a cleaning": _Rebase(overwriter=True, sweeps=1),
        },
        {
            "three rebasers, two rounds": _Rebase(writers=3, rebasers=3),
            "three writers, a second attempt, two rounds": _Rebase(writers=3, ghost=True),
            "three writers, a cleaning": _Rebase(writers=3, rounds=1, sweeps=1),
            "a second attempt, two cleanings": _Rebase(ghost=True, sweeps=2),
        },
    ),
    "reservations": Feature(
        reservation.Reservations,
        reservation.Rules,
        {
            "three writers": _Reserve(),
            "one reserves at once": _Reserve(declared=1),
            "of the whole table": _Reserve(declared=1, whole_table=True),
            "in a chain of overlaps": _Reserve(apart=apart((0, 2))),
            "one dies": _Reserve(deaths=1),
            "two living ones are taken for dead": _Reserve(suspects=2),
            "two reservations last too long": _Reserve(expiries=2),
            "two epochs end": _Reserve(epochs=2),
            "two take the lock first, of the whole table": _Reserve(lock_first=6, whole_table=True),
            "three priorities, one dies": _Reserve(priorities=(5, 1, 0), deaths=1),
            "a table service that yields": _Reserve(services=1),
            "a table service that yields, and reserves": _Reserve(services=1, declared=1),
            "two writers that yield to a service, all reserve": _Reserve(services=1, plans_first=True, declared=3),
        },
        {
            "four writers": _Reserve(writers=4),
            "one dies, one lasts too long, an epoch ends": _Reserve(deaths=1, expiries=1, epochs=1),
        },
    ),
    "lock change": Feature(
        lock_change.LockChange,
        lock_change.Rules,
        {
            "to Y and back": _Lock(changers=(lock_change.Y, lock_change.X)),
            "three changes": _Lock(committers=1, changers=(lock_change.Y, lock_change.Y, lock_change.X)),
            "two leases end": _Lock(endings=2),
            "a server begins again, a lease ends": _Lock(forgets=1, endings=1),
            "a server loses a grant, a lease ends": _Lock(repeats=1, endings=1),
            "the new lock cannot be had": _Lock(stuck=True),
        },
        {
            "to Y and back, all that can go wrong once": _Lock(
                changers=(lock_change.Y, lock_change.X), endings=1, forgets=1, repeats=1
            ),
        },
    ),
    "neighbours": Feature(
        neighbours.Neighbours,
        neighbours.Rules,
        {
            "two of ours, a foreign writer": _Beside(),
            "a lease ends": _Beside(endings=1),
            "it rolls back what is silent": _Beside(lazy=True),
            "it rolls back whatever is pending": _Beside(eager=True),
            "one of ours dies, a cleaner": _Beside(deaths=1, cleaner=True),
            "a foreign restore": _Beside(foreign=0, restore=True),
            "a foreign clustering": _Beside(foreign=0, clustering=True),
            "one of ours, two foreign writers, a lease ends": _Beside(ours=1, foreign=2, endings=1),
            "a pause between the question and the put": _Beside(ours=1, foreign=2, endings=1, pauses=1),
        },
        {
            "one dies, a lease ends, a cleaner": _Beside(deaths=1, endings=1, cleaner=True),
            "one dies, it rolls back what is silent": _Beside(deaths=1, lazy=True),
            "a foreign restore, a lease ends, one dies, a cleaner": _Beside(
                foreign=0, restore=True, endings=1, deaths=1, cleaner=True
            ),
            "a foreign clustering, a restore, one dies, a cleaner": _Beside(
                foreign=0, clustering=True, restore=True, deaths=1, cleaner=True
            ),
            "two foreign writers, a lease ends": _Beside(foreign=2, endings=1),
            "two foreign writers, a pause": _Beside(foreign=2, endings=1, pauses=1),
        },
    ),
    "coordinator": Feature(
        coordinator.Coordinated,
        coordinator.Rules,
        {
            "two writers": _Led(),
            "two writers, a lost reply": _Led(unknown=1),
            "two that do not overlap, two coordinators": _Led(conflicts=_NONE, coordinators=2),
            "two that merge again, a cleaner": _Led(rounds=2, cleaner=True),
            "two that try twice": _Led(attempts=2, gives_up=False),
            "one batch of two, a lost reply": _Led(conflicts=_NONE, same_batch=_TWO, unknown=1),
            "three writers": _Led(writers=3, gives_up=False),
            "three, none overlaps": _Led(writers=3, conflicts=_NONE, gives_up=False),
            "three that merge again, one overlaps with both": _Led(
                writers=3, conflicts=overlapping((0, 1), (0, 2)), rounds=2, gives_up=False
            ),
        },
        {
            "each overlaps with the next in one direction, a lost reply": _Led(
                writers=3, conflicts=frozenset(((0, 1), (1, 2))), unknown=1
            ),
            "three in a chain of overlaps, a cleaner": _Led(
                writers=3, conflicts=overlapping((0, 1), (1, 2)), cleaner=True
            ),
            "two writers, two coordinators, a lost reply": _Led(coordinators=2, unknown=1),
            "two that try twice, a lost reply": _Led(attempts=2, unknown=1),
            "two that merge again, two coordinators, a cleaner": _Led(rounds=2, coordinators=2, cleaner=True),
            "one batch of two that try twice, a cleaner": _Led(
                conflicts=_NONE, same_batch=_TWO, attempts=2, cleaner=True
            ),
        },
    ),
    "begins together": Feature(
        begins.Begins,
        begins.Rules,
        {
            "two, two coordinators": _Begins(coordinators=2),
            "two, an epoch ends": _Begins(epochs=1),
            "two, a lost reply": _Begins(unknown=1),
            "two, the settings change": _Begins(settings=1),
            "two, somebody reserves": _Begins(reserver=True),
            "two, one is taken for dead": _Begins(suspects=1),
            "three that do not give up": _Begins(askers=3, gives_up=False),
        },
        {
            "two, two epochs end": _Begins(epochs=2),
            "two, an epoch ends, a lost reply": _Begins(epochs=1, unknown=1),
            "two, the settings change, somebody reserves": _Begins(settings=1, reserver=True),
            "two, each is taken for dead, a lost reply": _Begins(suspects=2, unknown=1),
            "three that do not give up, an epoch ends": _Begins(askers=3, epochs=1, gives_up=False),
        },
    ),
    "confirmation": Feature(
        confirmation.Confirmation,
        confirmation.Rules,
        {
            "one commits and one begins": _Confirm(1),
            "two commit": _Confirm(beginners=0),
            "one commits, two coordinators": _Confirm(1, 0, coordinators=2),
        },
        {
            "two commit and one begins": _Confirm(),
            "one commits, two epochs end": _Confirm(1, 0, ends=2),
        },
    ),
    "several tables": Feature(
        several_tables.SeveralTables,
        several_tables.Rules,
        {
            "two, a lost reply": _Several(unknown=1),
            "two that do not overlap, a reader": _Several(overlap=False, settles=1, reader=True),
            "two, the home forgets": _Several(forgets=1),
            "one over three tables, two lost replies, the home is restored and forgets": _Several(
                ((0, 1, 2),), tables=3, unknown=2, forgets=1, restores=1
            ),
            "one, a writer of its first table": _Several(((0, 1), (0,)), unknown=1),
            "one, a writer of its home": _Several(((0, 1), (1,)), unknown=1),
            "two that do not overlap, of three tables": _Several(((0, 1), (1, 2)), tables=3, overlap=False),
            "one, a reader": _Several(((0, 1),), reader=True),
            "two without a settler, a reader": _Several(overlap=False, settles=0, reader=True),
        },
        {
            "two over three tables, a lost reply": _Several(((0, 1, 2), (0, 1, 2)), tables=3, unknown=1),
            "three, a lost reply": _Several(((0, 1), (0, 1), (0, 1)), unknown=1),
            "two, a writer, a reader": _Several(((0, 1), (0, 1), (0,)), overlap=False, settles=1, reader=True),
        },
    ),
}

_TWICE, _LOST = "readers meet a row twice", "readers do not see the result of the commits in slot order"
_TWO_FILES, _LEFT = "two files of one file group and T", "a pending instant of an ended transaction is left"
_NEVER = "from here on never again"
_OVERLAP, _GONE = "two overlapping transactions both committed", "files of a published commit are deleted"
_TOLD, _MISSING_FILES = "told that nothing landed, and its commit landed", "files of a commit are not there"
_AGAIN, _TOLD_LANDED = "a numbered batch has landed twice", "was told that it landed, and it did not"
_COORDINATOR = FEATURES["coordinator"].sound
_BEGUN_TWICE, _STILL_OPEN = "begun twice", "told that it is over, and its transaction is open"
_BEGUN = FEATURES["begins together"].sound
_CONFIRM = FEATURES["confirmation"].sound["one commits and one begins"]
_SEVERAL = FEATURES["several tables"].sound
_HALF, _BEHIND = "landed in one table and not in another", "went behind one that was prepared"
_XYX = (lock_change.Y, lock_change.X)
_MOVED = "a commit stands in a file group that a clustering has replaced"
_BEYOND = "a commit stands on what was taken back"
_BOTH = "a transaction is both committed and ended"
_DEATH, _PAUSE = (
    FEATURES["neighbours"].sound[name]
    for name in ("one of ours dies, a cleaner", "a pause between the question and the put")
)

MISSING: tuple[Missing, ...] = (
    Missing("rebase", "naming", "2", _Rebase(), _LOST, "same"),
    Missing("rebase", "naming", "11", _Rebase(ghost=True), _TWO_FILES, "by T"),
    Missing("rebase", "drop_superseded", "11", _Rebase(), _TWO_FILES, besides={"naming": "by T"}),
    Missing("rebase", "round_ids_replaced", "11", _Rebase(writers=3), _TWICE, besides={"drop_superseded": False}),
    Missing("rebase", "current_replaced", "2", _Rebase(), _TWICE),
    Missing("rebase", "none_skipped", "", _Rebase(writers=3, rounds=1), _LOST),
    Missing("rebase", "replaced_counts", "", _Rebase(writers=3, rounds=1), _LOST),
    Missing("rebase", "overwrite_is_hard", "15", _Rebase(overwriter=True), _LOST),
    Missing("rebase", "void_rewritten", "11", _Rebase(ghost=True, void=True), _LOST),
    Missing("rebase", "outcome_before_deletion", "19", _Rebase(ghost=True), "files of a committed transaction"),
    Missing("rebase", "both_actions", "", _Rebase(sweeps=1), _LEFT),
    Missing("reservations", "age_kept", "14", _Reserve(), "lost first waits for another"),
    Missing("reservations", "reserve_with_begin", "14", _Reserve(), "landed in the attempt of one that goes first"),
    Missing("reservations", "carried", "14", _Reserve(epochs=1), "landed in the attempt of one that goes first"),
    Missing("reservations", "begins_after", "14", _Reserve(), "went first and was open when it began"),
    Missing("reservations", "looked_at_slot", "14", _Reserve(), "went first and was open when it began"),
    Missing("reservations", "waits_outside", "", _Reserve(), _NEVER),
    Missing("reservations", "lock_after_wait", "", _Reserve(lock_first=6, whole_table=True), _NEVER),
    Missing("reservations", "one_order", "", _Reserve(services=1), _NEVER),
    Missing("reservations", "one_order", "", _Reserve(services=1, plans_first=True), _NEVER),
    Missing("reservations", "validated", "", _Reserve(), _OVERLAP),
    Missing("reservations", "dead_are_ended", "12", _Reserve(deaths=1), _NEVER),
    Missing("lock change", "old_taken", "", _Lock(), "an entry while another one holds the lock in force"),
    Missing("lock change", "new_taken", "12", _Lock(stuck=True), _NEVER),
    Missing("lock change", "generation_compared", "", _Lock(), "a commit under a lock that is not in force"),
    Missing("lock change", "tokens_compared", "", _Lock(changers=(), forgets=1), "a token that does not grow"),
    Missing("lock change", "new_generation", "12", _Lock(changers=(), forgets=1), _NEVER),
    Missing("lock change", "certain_before_second", "", _Lock(0, (lock_change.Y, *_XYX)), _NEVER),
    Missing("neighbours", "begun_under_lock", "1", _Beside(), "a T above that of its successor"),
    Missing("neighbours", "lease_after_request", "1", _Beside(endings=1), _OVERLAP),
    Missing("neighbours", "imported_before_decision", "3", _Beside(), _OVERLAP),
    Missing("neighbours", "timeline_first", "3", _Beside(endings=1), "holds a commit that is on no timeline"),
    Missing("neighbours", "lease_asked", "3", _Beside(endings=1), _OVERLAP),
    Missing("neighbours", "waits_for_begins", "1", _Beside(ours=1), "a T above that of its successor"),
    Missing("neighbours", "waits_for_restores", "4", _Beside(foreign=0, restore=True), _BEYOND),
    Missing("neighbours", "restores_imported", "4", _Beside(foreign=0, restore=True), _BEYOND),
    Missing("neighbours", "waits_for_clusterings", "", _Beside(foreign=0, clustering=True), _MOVED),
    Missing("neighbours", "clusterings_imported", "", _Beside(foreign=0, clustering=True), _MOVED),
    Missing("neighbours", "pending_looked_at", "3", _Beside(eager=True), _GONE),
    Missing("neighbours", "silence_stops", "13", _Beside(lazy=True), _GONE),
    Missing("neighbours", "rolled_back_under_lock", "3", _DEATH, _BOTH, besides={"silence_stops": False}),
    Missing("neighbours", "imported_before_rollback", "3", _DEATH, _BOTH),
    Missing("neighbours", "skips_noticed", "3", _PAUSE, "a skipped commit went unnoticed"),
    Missing("coordinator", "fellows_count", "", _Led(), _OVERLAP),
    Missing("coordinator", "batches_of_fellows", "", _COORDINATOR["one batch of two, a lost reply"], _AGAIN),
    Missing("coordinator", "own_base", "", _COORDINATOR["three that merge again, one overlaps with both"], _OVERLAP),
    Missing("coordinator", "own_measure", "", _COORDINATOR["three writers"], _OVERLAP),
    Missing("coordinator", "request_as_it_is", "", _COORDINATOR["two that merge again, a cleaner"], _MISSING_FILES),
    Missing("coordinator", "read_to_head", "", _Led(), "committed twice"),
    Missing("coordinator", "open_only", "", _Led(), "both committed and ended"),
    Missing("coordinator", "outcome_of_own", "", _Led(), "committed twice"),
    Missing("coordinator", "ends_by_abort", "", _Led(), _TOLD),
    Missing("coordinator", "absence_is_no_answer", "", _COORDINATOR["two writers, a lost reply"], _TOLD),
    Missing("coordinator", "whole_before_request", "", _Led(), _MISSING_FILES),
    Missing(
        "coordinator",
        "rollback_before_deletion",
        "",
        _COORDINATOR["two that merge again, a cleaner"],
        _MISSING_FILES,
    ),
    Missing("coordinator", "published_in_order", "", _Led(conflicts=_NONE), "published before an earlier one"),
    Missing("coordinator", "answered_behind_entry", "", _COORDINATOR["two writers, a lost reply"], _TOLD_LANDED),
    Missing("coordinator", "answered_when_published", "", _COORDINATOR["two writers, a lost reply"], _TOLD_LANDED),
    Missing(
        "coordinator",
        "last_member_looked_at",
        "",
        _COORDINATOR["three, none overlaps"],
        "published before an earlier one",
    ),
    Missing("begins together", "remembers", "", _Begins(), _BEGUN_TWICE),
    Missing("begins together", "names_epoch", "", _BEGUN["two, an epoch ends"], _STILL_OPEN),
    Missing("begins together", "carried", "", _BEGUN["two, an epoch ends"], _BEGUN_TWICE),
    Missing("begins together", "own_begin_named", "", _Begins(), _BEGUN_TWICE),
    Missing("begins together", "looks_in_vain", "", _Begins(), _BEGUN_TWICE),
    Missing("begins together", "read_to_head", "", _Begins(), _BEGUN_TWICE),
    Missing("begins together", "told_by_log", "", _Begins(), "committed what never began"),
    Missing("begins together", "base_of_entry", "", _Begins(), _OVERLAP),
    Missing(
        "begins together",
        "same_settings",
        "",
        _BEGUN["two, the settings change"],
        "under settings that it does not know",
    ),
    Missing(
        "begins together",
        "none_while_reserved",
        "",
        _BEGUN["two, somebody reserves"],
        "while somebody had reserved the place",
    ),
    Missing("begins together", "ends_by_abort", "", _Begins(), _STILL_OPEN),
    Missing(
        "begins together",
        "absence_is_no_answer",
        "",
        _BEGUN["two, a lost reply"],
        _STILL_OPEN,
    ),
    Missing("confirmation", "told", "18", _CONFIRM, _TOLD_LANDED, "all"),
    Missing("confirmation", "told", "18", _CONFIRM, _TOLD_LANDED, "but own"),
    Missing("confirmation", "looked_behind_put", "18", _CONFIRM, _TOLD_LANDED),
    Missing("confirmation", "own_epoch", "18", _CONFIRM, "published what never committed"),
    Missing("confirmation", "forgets", "18", _CONFIRM, _TOLD_LANDED),
    Missing("confirmation", "looked_before_publishing", "18", _CONFIRM, "published what never committed"),
    Missing("several tables", "prepared_first", "", _SEVERAL["one, a writer of its first table"], _OVERLAP),
    Missing("several tables", "home_first", "", _SEVERAL["two, the home forgets"], _HALF),
    Missing("several tables", "nothing_behind", "", _SEVERAL["two, the home forgets"], _BEHIND),
    Missing("several tables", "read_to_head", "", _SEVERAL["two, the home forgets"], _BEHIND),
    Missing("several tables", "one_order", "", _SEVERAL["two without a settler, a reader"], _NEVER),
    Missing("several tables", "absence_is_no_answer", "", _SEVERAL["two, a lost reply"], "and a table has it"),
    Missing("several tables", "kept", "", _SEVERAL["two, the home forgets"], _HALF),
    Missing("several tables", "undone_counts", "", _Several(((0, 1),), restores=1), _HALF),
    Missing("several tables", "answered_when_settled", "", _SEVERAL["one, a reader"], "and a table does not have it"),
    Missing("several tables", "looks_twice", "", _SEVERAL["one, a reader"], "sees half of a commit"),
    Missing("several tables", "nothing_undecided", "", _SEVERAL["one, a reader"], "sees half of a commit"),
)

# Rules whose absence is no fault: one is for progress, and that is asked the other way round; the other says that
# safety does not hang on anybody's heeding a reservation.
HARMLESS = {"from_merge", "heeded_at_commit"}


def sound_searches() -> Iterator[tuple[str, str]]:
    """(feature, name) of every search with all rules on."""
    for feature, each in FEATURES.items():
        yield from ((feature, name) for name in each.sound)
