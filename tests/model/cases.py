"""The searches that are run: sound ones with every rule on, and for each rule one without it.

`WIDE` takes minutes and is run by hand: ``python -m tests.model --wide``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from .rules import Bounds, Rules


def pairs(*writers: tuple[int, int]) -> frozenset[frozenset[int]]:
    """The pairs of writers that overlap."""
    return frozenset(frozenset(pair) for pair in writers)


NO_PAIR = pairs()
ALL_OF_THREE = pairs((0, 1), (0, 2), (1, 2))

SOUND: dict[str, Bounds] = {
    "two writers, two lost replies, two epochs": Bounds(epochs=2, unknown=2),
    "two open writers, a lost reply, three epochs": Bounds(begun=2, epochs=3, unknown=1),
    "two writers that overlap by a partition": Bounds(overlaps=NO_PAIR, phantoms=pairs((0, 1)), epochs=2, unknown=1),
    "two writers without an overlap": Bounds(overlaps=NO_PAIR, epochs=2, unknown=1),
    "two writers that try twice, a lost reply": Bounds(attempts=2, unknown=1),
    "two writers that try twice, two epochs": Bounds(attempts=2, epochs=2),
    "two writers, a change of settings or columns, a lost reply": Bounds(changes=1, unknown=1),
    "two writers without an overlap, two changes, two epochs": Bounds(overlaps=NO_PAIR, changes=2, epochs=2),
    "two writers, the log is lost": Bounds(epochs=2, unknown=1, rebuild=True),
    "two writers, close and open apart": Bounds(epochs=2, unknown=1, open_apart=True),
    "two open writers, entries deleted singly": Bounds(begun=2, epochs=2, delete_singly=True),
    "a cleaner, marker and file apart": Bounds(cleaners=1, unknown=1, files_apart=True),
    "a cleaner from the start, two epochs": Bounds(cleaners=1, rollbacks=1, epochs=2),
    "a cleaner, open writers, two epochs, a lost reply": Bounds(begun=2, cleaners=1, rollbacks=1, epochs=2, unknown=1),
    "a cleaner, entries deleted singly": Bounds(
        writers=1, begun=1, cleaners=1, rollbacks=1, epochs=2, unknown=1, delete_singly=True, overlaps=NO_PAIR
    ),
    "a cleaner, a late open entry": Bounds(
        writers=1, begun=1, cleaners=1, rollbacks=1, epochs=3, unknown=1, open_apart=True, overlaps=NO_PAIR
    ),
    "two cleaners, open writers": Bounds(begun=2, cleaners=2, rollbacks=1),
    "a reader, an open writer, two epochs, a lost reply": Bounds(begun=1, readers=1, epochs=2, unknown=1),
    "three writers, a lost reply": Bounds(writers=3, overlaps=ALL_OF_THREE, unknown=1),
    "three writers, two epochs": Bounds(writers=3, overlaps=ALL_OF_THREE, epochs=2),
    "three open writers, two epochs, a lost reply": Bounds(
        writers=3, begun=3, overlaps=ALL_OF_THREE, epochs=2, unknown=1
    ),
    "three open writers, a cleaner": Bounds(writers=3, begun=3, overlaps=ALL_OF_THREE, cleaners=1, rollbacks=1),
    "three open writers in a chain of overlaps, two epochs, a lost reply": Bounds(
        writers=3, begun=3, overlaps=pairs((0, 1), (1, 2)), epochs=2, unknown=1
    ),
}

WIDE: dict[str, Bounds] = {
    "two open writers, entries deleted singly, a lost reply": Bounds(begun=2, epochs=2, unknown=1, delete_singly=True),
    "two writers, a lost reply, three epochs": Bounds(epochs=3, unknown=1),
    "two cleaners": Bounds(cleaners=2, rollbacks=1),
    "a reader, two epochs, a lost reply": Bounds(readers=1, epochs=2, unknown=1),
    "three writers in a chain of overlaps, a lost reply": Bounds(writers=3, overlaps=pairs((0, 1), (1, 2)), unknown=1),
    "one open writer, a cleaner, two epochs, a lost reply": Bounds(
        begun=1, cleaners=1, rollbacks=1, epochs=2, unknown=1
    ),
    "a cleaner from the start, two epochs, a lost reply": Bounds(cleaners=1, rollbacks=1, epochs=2, unknown=1),
    "a cleaner for two, open writers, three epochs": Bounds(begun=2, cleaners=1, epochs=3),
    "three writers, a lost reply, two epochs": Bounds(writers=3, overlaps=ALL_OF_THREE, epochs=2, unknown=1),
}


class Missing(NamedTuple):
    """A rule that is left out, and the fault that follows."""

    rule: str
    traps: str
    bounds: Bounds
    fault: str

    @property
    def rules(self) -> Rules:
        return replace(Rules(), **{self.rule: False})


MISSING: tuple[Missing, ...] = (
    Missing("begin_in_log", "1", Bounds(), "T above that of its successor"),
    Missing("repick_t", "1, 8", Bounds(), "T is used twice"),
    Missing("repick_c", "9", Bounds(overlaps=NO_PAIR), "completion times are out of order"),
    Missing("new_t_for_retry", "2", Bounds(), "T above that of its successor"),
    Missing("log_before_timeline", "6", Bounds(epochs=2, readers=1), "a commit without an earlier one"),
    Missing("read_to_head", "6", Bounds(cleaners=1, rollbacks=1), "both committed and rolled back"),
    Missing("reread_after_loss", "9", Bounds(), "two overlapping transactions both committed"),
    Missing("publish_earlier", "9", Bounds(), "published before an earlier one"),
    Missing("new_identity", "10", Bounds(epochs=2, rebuild=True), "published that never committed"),
    Missing("phantoms", "15", Bounds(overlaps=NO_PAIR, phantoms=pairs((0, 1))), "two overlapping transactions"),
    Missing(
        "relied_at_landing", "", Bounds(overlaps=NO_PAIR, changes=1), "relied on settings or columns that had changed"
    ),
    Missing("absence_is_no_answer", "17", Bounds(unknown=1), "files of a committed transaction are deleted"),
    Missing("recheck_after_put", "18", Bounds(epochs=2), "published that never committed"),
    Missing(
        "recheck_after_read",
        "18",
        SOUND["a cleaner, open writers, two epochs, a lost reply"],
        "published that never committed",
    ),
    Missing("keep_open", "18", Bounds(epochs=2), "two overlapping transactions both committed"),
    Missing("keep_later", "18", Bounds(epochs=3), "two overlapping transactions both committed"),
    Missing("markers_before_log", "6", Bounds(cleaners=1, rollbacks=1), "files of a committed transaction are deleted"),
    Missing("entry_before_deletion", "19", Bounds(cleaners=1, rollbacks=1), "files of a committed transaction"),
    Missing(
        "recognise_own",
        "20",
        SOUND["a cleaner, open writers, two epochs, a lost reply"],
        "told that nothing landed, and its commit landed",
    ),
    Missing("outcome_on_timeline", "5", Bounds(epochs=2), "files of a committed transaction are deleted"),
    Missing("grace", "11", Bounds(cleaners=1, rollbacks=1, files_apart=True), "no cleaner will find it"),
    Missing("outcome_of_newest", "18", Bounds(epochs=2, unknown=1), "published that never committed"),
    Missing(
        "folder_is_no_evidence",
        "18",
        SOUND["a cleaner, a late open entry"],
        "published that never committed",
    ),
)
