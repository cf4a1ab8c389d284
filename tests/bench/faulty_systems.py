"""Systems of which the oracle must notice that they are wrong: a list of rows in a file, written under an exclusive lock."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from lakelatch.bench import rows
from lakelatch.bench.systems import Configuration
from lakelatch.bench.works import WORKS, Aborted


class Right:
    """Every change of the file stands; what the others are compared with."""

    package = "lakelatch"
    works = frozenset(WORKS) - {"serve"}
    configurations = (Configuration("best", "a file"),)

    def __init__(self, settings):
        self.settings = settings

    def create(self, place, first):
        Path(place).mkdir(parents=True)
        Path(place, "rows").write_text(json.dumps(first.to_pylist()))
        Path(place, "lock").touch()

    def open(self, place, writer, priority):
        return Session(self, place, writer)

    def rows(self, place):
        there = json.loads(Path(place, "rows").read_text())
        return pa.Table.from_pylist(there, schema=rows.WIDE if "at0" in there[0] else rows.SCHEMA)

    def spoil(self, before, after, number, note):
        """What lands of the change number n."""
        return after


class Session:
    def __init__(self, system, place, writer):
        self.system, self.place, self.writer, self.number = system, Path(place), writer, 0

    @contextmanager
    def locked(self):
        with open(self.place / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def change(self, made, note):
        note.attempt()
        with self.locked():
            before = json.loads((self.place / "rows").read_text())
            after = made(before)
            note.think()
            self.number += 1
            after = self.system.spoil(before, after, self.number, note)
            (self.place / "new").write_text(json.dumps(after))
            os.replace(self.place / "new", self.place / "rows")
        note.landed("", [])

    def append(self, new, note):
        self.change(lambda there: there + new.to_pylist(), note)

    def replace(self, part, new, note):
        self.change(lambda there: [row for row in there if row["part"] != part] + new.to_pylist(), note)

    def upsert(self, new, note):
        mine = set(new["id"].to_pylist())
        self.change(lambda there: [row for row in there if row["id"] not in mine] + new.to_pylist(), note)

    def modify(self, keys, change, note):
        mine = {key for _, key in keys}

        def made(there):
            found = pa.Table.from_pylist([row for row in there if row["id"] in mine], schema=rows.SCHEMA)
            note.saw(found)
            return [row for row in there if row["id"] not in mine] + change(found).to_pylist()

        self.change(made, note)

    def event(self, stream, new, note):
        at = rows.stream_columns(stream)[0]
        news = {row["id"]: row for row in new.to_pylist()}
        self.change(lambda there: [self.newer(row, news.get(row["id"], row), at) for row in there], note)

    def newer(self, row, new, at):
        return row if row[at] is not None and row[at] > new[at] else row | new

    def delete(self, value, note):
        self.change(lambda there: [r for r in there if r["value"] != value or not r["id"].startswith("a-")], note)

    def hold(self, note):
        note.attempt()
        with self.locked():
            note.think()
        note.landed("", [])

    def close(self):
        pass


class Loses(Right):
    """Acknowledges a change that does not land."""

    def spoil(self, before, after, number, note):
        return before if number == 3 else after


class Doubles(Right):
    """Writes a row twice."""

    def spoil(self, before, after, number, note):
        return [*after, after[-1]] if number == 3 else after


class Invents(Right):
    """Has a row that nobody wrote."""

    def spoil(self, before, after, number, note):
        return [*after, {"id": "a-w9-9-0", "part": "p0", "value": 0, "by": "w9-9"}] if number == 3 else after


class Tears(Right):
    """Half of a commit lands."""

    def spoil(self, before, after, number, note):
        return after[:-1] if number == 3 else after


class AbortsButWrites(Right):
    """Says that nothing landed, and something did."""

    def open(self, place, writer, priority):
        return LyingSession(self, place, writer)


class LyingSession(Session):
    def change(self, made, note):
        super().change(made, note)
        if self.number == 3:
            raise Aborted("a lie")


class ReadsStale(Right):
    """Reads outside of the lock, so that two change what both have read."""

    def open(self, place, writer, priority):
        return StaleSession(self, place, writer)


class StaleSession(Session):
    def modify(self, keys, change, note):
        mine = {key for _, key in keys}
        if self.number == 3:  # of a state before its own last change
            there = self.kept
        else:
            there = self.kept = json.loads((self.place / "rows").read_text())
        found = pa.Table.from_pylist([row for row in there if row["id"] in mine], schema=rows.SCHEMA)
        note.saw(found)
        self.change(lambda now: [r for r in now if r["id"] not in mine] + change(found).to_pylist(), note)


class LastComesWins(Right):
    """Takes the event that came last for the newest."""

    def open(self, place, writer, priority):
        return ForgetfulSession(self, place, writer)


class ForgetfulSession(Session):
    def newer(self, row, new, at):
        return row | new


class LocksNobody(Right):
    """Lets all hold the lock."""

    def open(self, place, writer, priority):
        return OpenSession(self, place, writer)


class OpenSession(Session):
    @contextmanager
    def locked(self):
        yield


class Crashes(Right):
    """Its process ends in the middle."""

    def spoil(self, before, after, number, note):
        if number == 3:
            os._exit(7)
        return after


class Refuses(Right):
    """Each write fails for a reason that no other attempt can mend."""

    def spoil(self, before, after, number, note):
        raise ValueError("the disk is | full <b>")


class CannotBeMade(Right):
    """Its table cannot be made."""

    def create(self, place, first):
        raise OSError("no such | place")
