"""``lakelatch mergers``: list and check."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import lakelatch
from lakelatch.mergers import BUILT_IN

MODULE = """
import pyarrow as pa
from lakelatch.mergers import Laws

class Least:
    def laws(self, kind):
        return Laws(commutative=True, associative=True, idempotent=True)

    def merge(self, values, groups):
        return pa.array([self.of(values[a:b].to_pylist()) for a, b in zip(groups.offsets, groups.offsets[1:])], values.type)

    def of(self, values):
        return min((each for each in values if each is not None), default=None)

class Newest(Least):
    def of(self, values):
        return values[-1]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "path", sys.path)  # put back what `check` adds
    sys.modules.pop("of_a_user", None)
    return "of_a_user"


def test_every_merger_is_listed_with_its_laws(run):
    told = {each["merger"].partition("(")[0]: each for each in run.json("mergers", "list")}
    assert set(told) == set(BUILT_IN)
    assert told["sum"] == {
        "merger": "sum",
        "type": "int64",
        "commutative": True,
        "associative": True,
        "idempotent": False,
    }
    assert "top_n(3)" in run("mergers", "list").stdout


def test_a_users_merger_that_keeps_its_laws_is_told_so(run, module):
    shown = run("mergers", "check", f"{module}:Least", "--type", "int64", "--examples", "3").stdout
    assert shown.endswith("keeps its laws for int64\n")


def test_a_broken_law_is_shown_as_a_table_and_is_exit_code_1(run, module):
    shown = run("mergers", "check", f"{module}:Newest", "--type", "int64", "--examples", "0", code=1).stdout
    assert "of_a_user:Newest of int64 breaks the law 'order':\nslot  value\n1     None\n2     0\n" in shown
    told = run.json("mergers", "check", f"{module}:Newest", "--type", "int64", "--examples", "0", code=1)
    assert not told["sound"]
    assert {each["law"] for each in told["broken"]} >= {"order"}


def test_a_table_is_created_with_its_mergers(run, tmp_path):
    url = str(tmp_path / "t")
    run("create", url, "--record-key", "id", "--merge", "n=sum", "--merge", "x=last_unless('=')")
    with lakelatch.open(url) as t:
        t.upsert([{"id": "a", "n": 1, "x": "old"}])
        t.upsert([{"id": "a", "n": 2, "x": "="}])
        assert t.read().to_pylist() == [{"id": "a", "n": 3, "x": "old"}]
    assert "merge is" in run("create", f"{url}2", "--record-key", "id", "--merge", "n", code=2).stderr


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["nope"], "no merger 'nope'"), (["nowhere:M"], "can't be imported here"), (["sum", "--type", "zz"], "no type 'zz'"),
        (["sum", "--type", "string"], "sum adds numbers"),
    ],
)  # fmt: skip
def test_what_can_not_be_checked_is_told(run, args, why):
    assert why in run("mergers", "check", *args, code=2).stderr
