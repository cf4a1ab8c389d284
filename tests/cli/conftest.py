from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import Result

import lakelatch
from lakelatch.cli.app import app

from ..command_line import Runner


def rows(value: int) -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in range(5)], "origin": ["JFK"] * 5, "v": [value] * 5})


class Command:
    """Runs the command line in this process."""

    def __call__(self, *arguments: str, code: int = 0, given: str | None = None) -> Result:
        result = Runner().invoke(app, list(arguments), input=given)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def json(self, *arguments: str, code: int = 0):
        return json.loads(self(*arguments, "--json", code=code).stdout)


@pytest.fixture
def run() -> Command:
    return Command()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    """Two commits, and between them a transaction that lost; heartbeats are quick, so that nobody waits for long."""
    url = str(tmp_path / "flights")
    with lakelatch.create(
        url, record_key="id", partition_by="origin", writer="A", heartbeat_interval_s=0.1, heartbeat_timeout_s=5.0
    ) as table:
        with table.transaction("insert") as txn:
            txn.new_file("origin=JFK").write(rows(0))
        loser = table.transaction("upsert")
        with table.transaction("upsert") as txn:
            for group in txn.snapshot.file_slices():
                txn.rewrite(group).write(rows(1))
        for group in loser.snapshot.file_slices():
            loser.rewrite(group).write(rows(2))
        with pytest.raises(lakelatch.ConflictError):
            loser.commit()
        yield table
