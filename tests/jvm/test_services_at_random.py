"""Random transactions of ours, of several calls and at once, between writes and table services of the JVM, against a model."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch

from ..thorough import THOROUGH, some
from .neighbours import KINDS, Shared, row
from .readers import ask_jvm

pytestmark = pytest.mark.jvm

Rows = dict[str, int]  # the value of each key
STEPS = 40 if THOROUGH else 12


class Story:
    """A table, and the rows that it has to hold."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.luck, self.shared, self.value = random.Random(seed), Shared(folder, **KINDS[kind]), 0
        self.shared.options["hoodie.compact.inline"] = "false"
        self.rows: Rows = {f"{who}{number}{part}": 0 for who in "jp" for part in "ab" for number in range(3)}
        services = ["compaction", "log compaction"] if "merge-on-read" in kind else []
        services += ["clean"] if "buckets" in kind else ["clean", "clustering"]
        self.services, self.told = services, list[str]()

    def _one(self, who: str) -> tuple[str, str, int, int]:
        self.value += 1
        return who, self.luck.choice("ab"), self.luck.randint(0, 5), self.value

    def _call(self, txn: lakelatch.Transaction) -> tuple[str, Callable[[Rows], None]]:
        """Make one call of a transaction; what it was, and what it does to the rows."""
        kind = self.luck.choice(["upsert"] * 5 + ["delete", "update_where", "delete_where"])
        kind = "overwrite" if txn.operation == "insert_overwrite" else kind
        many = self.luck.randint(1, 3) if kind in ("upsert", "delete") else 1
        chosen = {each["id"]: each for each in (row(*self._one("p")) for _ in range(many))}
        values, (key, one) = {name: each["v"] for name, each in chosen.items()}, next(iter(chosen.items()))

        def does(rows: Rows) -> None:
            for each in [each for each in rows if each in values or (kind == "overwrite" and each[-1] == key[-1])]:
                if kind == "update_where":
                    rows[each] = values[each]
                else:
                    del rows[each]
            if kind in ("upsert", "overwrite"):
                rows.update(values)

        match kind:
            case "upsert":
                txn.upsert(list(chosen.values()))
            case "delete":
                txn.delete([{"id": name, "part": each["part"]} for name, each in chosen.items()])
            case "overwrite":
                txn.overwrite([one])
            case "update_where":
                txn.update_where([("id", "=", key)], {"v": one["v"]})
            case _:
                txn.delete_where([("id", "=", key)])
        return f"{kind} {list(values)}", does

    def ours(self) -> None:
        """One to three transactions at once. One that loses has changed nothing; another is behind those before it."""
        begun = [
            self.shared.table.transaction(self.luck.choice(["upsert", "upsert", "insert_overwrite"]))
            for _ in range(self.luck.choice((1, 1, 2, 3)))
        ]
        for txn in self.luck.sample(begun, len(begun)):
            calls = list[tuple[str, Callable[[Rows], None]]]()
            try:
                calls += (self._call(txn) for _ in range(self.luck.randint(1, 3)))
                landed = txn.commit()
            except lakelatch.CommitError as e:
                self.told.append(type(e).__name__)
                txn.abort()
            else:  # None: nothing to do, as of its snapshot
                for _, does in calls if landed else ():
                    does(self.rows)
            self.told.append(f"ours {txn.instant} {txn.operation} {[told for told, _ in calls]}")

    def theirs(self) -> None:
        """A write of the JVM, or a table service of it."""
        shared, kind = self.shared, self.luck.choice(["upsert", "delete", *self.services, *self.services])
        if kind in ("upsert", "delete"):
            some_rows = {each["id"]: each for each in (row(*self._one("j")) for _ in range(2))}
            answer = shared.jvm(list(some_rows.values()), hoodie__datasource__write__operation=kind)
            for key, each in some_rows.items():
                self.rows.pop(key, None)
                self.rows |= {key: each["v"]} if kind == "upsert" else {}
        else:
            config = shared.table.config
            request = {"kind": "service", "service": kind, "path": str(shared.path), "name": config.name}
            (answer,) = ask_jvm([request | {"schema": config.create_schema, "options": shared.options}], shared.folder)
        self.told.append(f"theirs {kind}")
        assert "rows" in answer, (self.told, answer["error"])


@pytest.mark.parametrize(("kind", "seed"), some([(kind, seed) for seed in range(6) for kind in KINDS], 2))
def test_random_transactions_between_services_of_the_jvm(tmp_path: Path, kind: str, seed: int) -> None:
    story = Story(tmp_path, kind, seed)
    does: list[Callable[[], Any]] = [story.ours, story.ours, story.theirs]
    for _ in range(STEPS):
        story.luck.choice(does)()
        assert story.shared.agreed() == story.rows, story.told
    story.shared.sound()
    story.shared.table.close()
