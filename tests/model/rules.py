"""The protocol's rules as switches, and the bounds of a search.

A search with every rule on must find nothing; `test_model.py` turns them off one at a time, and each must be missed.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rules:
    """What keeps the protocol right. The numbers are those of the traps that a rule prevents."""

    begin_in_log: bool = True
    """A transaction begins with an entry, so that its T has a place in the order. [1]"""
    repick_t: bool = True
    """T is picked again at every slot tried. [1]"""
    repick_c: bool = True
    """C is picked again at every slot tried. [9]"""
    new_t_for_retry: bool = True
    """A transaction that lost does its work again under a new T. [2]"""
    log_before_timeline: bool = True
    """A snapshot reads the log first and the timeline after it. [6]"""
    read_to_head: bool = True
    """A cleaner decides on the log that ends at the slot which its rollback entry takes. [6]"""
    reread_after_loss: bool = True
    """A commit whose slot was taken reads that slot and decides again."""
    publish_earlier: bool = True
    """The last commit entry is on the timeline before another one is appended. [9]"""
    new_identity: bool = True
    """A log that was lost is built again as a new epoch. [10]"""
    phantoms: bool = True
    """The write set of an overwrite is its partitions, not the file groups it saw there. [15]"""
    relied_at_landing: bool = True
    """What a transaction relied on of settings and columns is compared with those before the slot where it commits."""
    absence_is_no_answer: bool = True
    """After a put without a reply, the same entry goes to the same slot; absence says nothing. [17]"""
    recheck_after_put: bool = True
    """After a put the newest epoch is looked up: if it has moved on, the outcome of T there decides. [18]"""
    recheck_after_read: bool = True
    """After reading to the head the newest epoch is looked up before anything is published or concluded. [18]"""
    keep_open: bool = True
    """An epoch's folder stays while a transaction that began in it is open. [18]"""
    keep_later: bool = True
    """It also stays while one that began in an earlier epoch is open: its candidates lie here. [18]"""
    markers_before_log: bool = True
    """A cleaner lists markers first and reads the log after: what is not open then has ended, not yet to begin. [6]"""
    entry_before_deletion: bool = True
    """A cleaner's rollback entry stands before it deletes the first file. [19]"""
    recognise_own: bool = True
    """Another entry in one's own slot says nothing; only the outcome of T does. [20]"""
    outcome_on_timeline: bool = True
    """What the log does not know any more, the timeline does: a published T is committed. [5]"""
    grace: bool = True
    """A cleaner gives up a marker only when no worker of T can be between its marker and its file any more. [11]"""
    outcome_of_newest: bool = True
    """What is committed, the newest epoch says (and the timeline): strays may stand in an older folder. [18, 20]"""
    folder_is_no_evidence: bool = True
    """Off: a put into an old epoch counts, too, if its folder shows every entry up to it and no close. [18]"""


@dataclass(frozen=True)
class Bounds:
    """How much may happen. Everything within the bounds does, in every order."""

    writers: int = 2
    attempts: int = 1
    """Transactions that each writer begins, one after the other."""
    cleaners: int = 0
    rollbacks: int = 2
    """Transactions that each cleaner ends or sweeps."""
    readers: int = 0
    epochs: int = 1
    unknown: int = 0
    """Puts to the log whose reply is lost; each lands at once, later, or never."""
    changes: int = 0
    """How often settings change, or a column is dropped, on which every transaction relies."""
    overlaps: frozenset[frozenset[int]] = field(default_factory=lambda: frozenset({frozenset({0, 1})}))
    """Pairs of writers that change the same file group."""
    phantoms: frozenset[frozenset[int]] = frozenset()
    """Pairs of which one overwrites a partition in which the other creates a file group: an overlap, too."""
    begun: int = 0
    """Writers whose transactions are open, with their files written, at the start."""
    files_apart: bool = False
    """Marker and file are two steps of a writer, so that a cleaner can come between them."""
    open_apart: bool = False
    """An epoch's close and the next one's open entry are two steps. Between them nothing can be appended."""
    delete_singly: bool = False
    """An epoch's entries are deleted one by one, in any order, instead of all at once."""
    rebuild: bool = False
    """The log may get lost while all commits are published; it is built again."""

    @property
    def equal_writers(self) -> bool:
        """Whether the writers differ in their number only."""
        pairs = self.writers * (self.writers - 1) // 2
        return not self.phantoms and len(self.overlaps) in (0, pairs)

    def overlap(self, a: int, b: int) -> bool:
        """Whether no serial order explains both commits, had neither seen the other."""
        pair = frozenset({a, b})
        return pair in self.overlaps or pair in self.phantoms
