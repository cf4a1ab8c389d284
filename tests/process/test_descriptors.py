"""A process that may open no more files: each of its errors is one of ours, and says rightly that nothing landed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..servers import KEY, require, versitygw

pytestmark = pytest.mark.process

_WRITES = """
import json, os, resource, sys
import lakelatch

url, verb = sys.argv[1:]
with lakelatch.create(url, record_key="id", schema="id string, v bigint") as table:
    def write(number):
        getattr(table, verb)([{"id": f"a{number}", "v": number}])

    for number in range(3):
        write(number)
        table.upsert([{"id": "b", "v": number}])
    table.read().to_arrow()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for free in range(7):
        used, limit, left = {int(each) for each in os.listdir("/proc/self/fd")}, 0, free
        while left or limit in used:
            left -= limit not in used
            limit += 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            write(100 + free)
            told = ""
        except Exception as e:
            told = f"{type(e).__module__} {type(e).__name__}: {e}"
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print(json.dumps([free, told, len(table.read(where=f"id = 'a{100 + free}'").to_arrow())]), flush=True)
"""


def check(url: str, verb: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WRITES, url, verb], env=os.environ | environment, stdout=subprocess.PIPE, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 7
    for free, told, rows in found:
        assert not told or told.startswith("lakelatch.errors "), f"with {free} descriptors: {told}"
        assert rows == (not told), f"with {free} descriptors: {told}"
    assert found[0][1], "it needs no descriptor, so this test shows nothing"
    assert not found[-1][1]


@pytest.mark.parametrize("verb", ["upsert", "insert"])
def test_without_descriptors_a_write_lands_or_says_that_it_did_not(tmp_path: Path, verb: str) -> None:
    check(str(tmp_path / "t"), verb)


@pytest.mark.server
def test_without_descriptors_a_write_to_an_object_store_lands_or_says_that_it_did_not(tmp_path: Path) -> None:
    require("versitygw")
    with versitygw(tmp_path) as bucket:
        check(
            f"{bucket.url}/t", "upsert", AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=KEY, AWS_REGION="us-east-1",
            AWS_ALLOW_HTTP="true", AWS_ENDPOINT=bucket.options["endpoint"],
        )  # fmt: skip
