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

    def _call(self, txn: lakelatch.Transaction, rows: Rows) -> str:
        """One call of a transaction, on the rows as it has to see them."""
        kind = self.luck.choice(["upsert"] * 5 + ["delete", "update_where", "delete_where"])
        kind = "overwrite" if txn.operation == "insert_overwrite" else kind
        if kind in ("upsert", "delete"):
            some_rows = {each["id"]: each for each in (row(*self._one("p")) for _ in range(self.luck.randint(1, 3)))}
            if kind == "upsert":
                txn.upsert(list(some_rows.values()))
                rows |= {key: each["v"] for key, each in some_rows.items()}
            else:
                txn.delete([{"id": key, "part": each["part"]} for key, each in some_rows.items()])
                for key in some_rows:
                    rows.pop(key, None)
            return f"{kind} {list(some_rows)}"
        who, part, number, value = self._one("p")
        key = f"{who}{number}{part}"
        if kind == "overwrite":
            txn.overwrite([row(who, part, number, value)])
            for each in [each for each in rows if each.endswith(part)]:
                del rows[each]
            rows[key] = value
        elif kind == "update_where":
            txn.update_where([("id", "=", key)], {"v": value})
            rows |= {key: value} if key in rows else {}
        else:
            txn.delete_where([("id", "=", key)])
            rows.pop(key, None)
        return f"{kind} {key}"

    def ours(self) -> None:
        """One to three transactions at once. One that loses has changed nothing; another is behind those before it."""
        begun = [
            self.shared.table.transaction(self.luck.choice(["upsert", "upsert", "insert_overwrite"]))
            for _ in range(self.luck.choice((1, 1, 2, 3)))
        ]
        before = dict(self.rows)
        for txn in self.luck.sample(begun, len(begun)):
            after, calls = dict(before), [txn.operation]
            try:
                calls += [self._call(txn, after) for _ in range(self.luck.randint(1, 3))]
                txn.commit()
            except lakelatch.CommitError as e:
                calls.append(type(e).__name__)
                txn.abort()
            else:
                changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
                self.rows = {key: v for key, v in self.rows.items() if key not in changed}
                self.rows |= {key: after[key] for key in changed if key in after}
            self.told.append(f"ours {txn.instant} {calls}")

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


@pytest.mark.parametrize(("kind", "seed"), some([(kind, seed) for seed in range(6) for kind in KINDS], 4))
def test_random_transactions_between_services_of_the_jvm(tmp_path: Path, kind: str, seed: int) -> None:
    story = Story(tmp_path, kind, seed)
    does: list[Callable[[], Any]] = [story.ours, story.ours, story.theirs]
    for _ in range(STEPS):
        story.luck.choice(does)()
        assert story.shared.agreed() == story.rows, story.told
    story.shared.sound()
    story.shared.table.close()
