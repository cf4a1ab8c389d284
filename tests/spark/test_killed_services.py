"""kill -9 of a driver in the middle of its services: others end or finish them while its tasks go on, and these do no harm."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.demo.cluster import until
from lakelatch.occ.table import Table

from ..servers import send_signal
from .driver import started, swept
from .service_job import CALLS
from .test_services import filled, rows_of

PATIENCE_S = 300.0
CITIES = ["a", "b ä%{}", "c", "d"]


def old(folder: Path, service: str) -> list[dict[str, Any]]:
    """A table in which that service has four parts to do, and its rows."""
    settings: dict[str, Any] = {"record_key": "id", "partition_by": "city"}
    if service.startswith("compact"):
        settings |= {"type": "merge_on_read", "bucket_count": 1}
    with lakelatch.create(str(folder / service), **settings) as table:
        filled(table, files=3 if service == "cluster" else 1, cities=CITIES)
        for name in () if service == "cluster" else ("new", "newer"):
            keys = [(city, n) for city in CITIES for n in range(99)]
            table.upsert(
                pa.table(
                    {
                        "id": [f"0-{city}-{n}" for city, n in keys],
                        "city": [city for city, _ in keys],
                        "n": [7] * len(keys),
                        "name": [name] * len(keys),
                    }
                )
            )
        return rows_of(table)


@pytest.fixture
def before(tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    return {service: old(tmp_path, service) for service in CALLS}


@pytest.fixture
def driver(tmp_path: Path, before: object) -> Iterator[subprocess.Popen[str]]:
    """A process, and with it Spark's, whose services wait in the middle. All end with the test."""
    process = started("service_job", tmp_path, *CALLS)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    jvm = tmp_path / "jvm"
    if jvm.exists():
        send_signal(int(jvm.read_text()), signal.SIGKILL)


def sound(table: Table, before: list[dict[str, Any]]) -> None:
    """Its rows are those of before, and nothing is there that nobody needs."""
    assert rows_of(table) == before
    assert table.plans() == []
    swept(table)


def data_files(folder: Path) -> list[str]:
    """All that are there."""
    return [each.name for each in folder.glob("*=*/*") if not each.name.endswith("_metadata")]


@pytest.mark.thorough
def test_services_of_a_killed_driver_are_ended_or_finished_while_its_tasks_go_on(
    tmp_path: Path, before: dict[str, list[dict[str, Any]]], driver: subprocess.Popen[str]
) -> None:
    """One task of each is about to publish a file, or to delete one. On a cluster tasks outlive their driver by a while: here
    Spark's JVM, which would end them, is stopped.
    """

    def flag(name: str) -> Path:
        return tmp_path / name

    def arrives(name: str) -> None:
        until(lambda: flag(name).exists() or driver.poll() is not None, f"no {name}", PATIENCE_S)
        assert flag(name).exists(), flag("log").read_text()[-3000:]

    for service in CALLS:
        arrives(f"{service}-waits")
    send_signal(int(flag("jvm").read_text()), signal.SIGSTOP)
    driver.kill()
    driver.wait()
    for service, rows in before.items():
        with lakelatch.open(str(tmp_path / service)) as table:
            (plan,) = table.plans()
            done = table.run_services(cluster=service == "cluster")
            assert not done.failed
            sound(table, rows)
            flag(f"{service}-on").touch()
            until(flag(f"{service}-gone").exists, f"the task of {service} did not go on", PATIENCE_S)
            sound(table, rows)
            # A clean is decided when it is planned; the others are done again.
            files = data_files(tmp_path / service)
            if service == "clean":
                assert len(files) == len(CITIES)
            else:
                assert not [each for each in files if plan.instant in each]
                assert set(done.done) == {"compact" if service == "compact_logs" else service}
