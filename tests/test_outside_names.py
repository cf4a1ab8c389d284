"""Digits in names and texts from outside are the ten of ASCII: `str.isdigit` knows more of them, and `int` fewer or others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lakelatch.hudi.files.file_names import parse_log_name
from lakelatch.hudi.files.listing import BaseFile
from lakelatch.hudi.timeline import is_time, parse
from lakelatch.locks.hudi import table_settings
from lakelatch.occ.liveness import is_list
from lakelatch.occ.log import is_epoch, is_slot

ROOT = Path(__file__).parents[1] / "src/lakelatch"
OTHERS = ["\u00b2", "\u0663", "\uff11", "\u2460"]  # two that `int` takes, and two that it fails on
# No number is made of these, or they are bytes.
HARMLESS = {"hudi/table/avro_schema.py", "server/guard.py", "cli/table/check.py", "hudi/timeline/instant.py"}


def sources() -> list[Path]:
    folders = [ROOT, *(each for each in ROOT.iterdir() if each.is_symlink())]  # a glob does not follow links
    found = {path for folder in folders for path in folder.rglob("*.py")}
    return sorted(path for path in found if path.relative_to(ROOT).parts[0] not in ("bench", "demo", "testing"))


def test_no_digit_of_another_script_is_taken_for_one():
    wrong = []
    for path in sources():
        lines, name = path.read_text().splitlines(), str(path.relative_to(ROOT))
        for number, line in enumerate(lines, 1):
            asks = re.search(r"\.is(digit|decimal|numeric)\(", line) and "isascii" not in line and name not in HARMLESS
            pattern = r"\d" in line and "re.ASCII" not in line
            if asks or pattern:
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert len(sources()) > 300
    # The statuses in the texts of a client, whose digits are ASCII.
    assert wrong == [each for each in wrong if each.startswith("storage/cloud/requests.py")], wrong


def test_the_harmless_ones_are_still_there():
    for name in HARMLESS:
        assert "isdigit" in (ROOT / name).read_text()
        ast.parse((ROOT / name).read_text())


@pytest.mark.parametrize("digit", OTHERS)
def test_such_names_are_nobodys(digit):
    assert parse(f"{digit * 17}_{digit * 17}.commit", layout=2) is None
    assert parse(f"{digit * 17}.commit", layout=1) is None
    assert parse(f"{digit * 17}.commit.requested", layout=2) is None
    assert not is_time(digit * 17)
    assert BaseFile.at(f"a-0_0-0-0_{digit * 17}.parquet", 0) is None
    assert parse_log_name(f".a-0_{digit * 17}.log.1_0-0-0") is None
    assert parse_log_name(f".a-0_20260101000000000.log.{digit}_0-0-0") is None
    assert not is_list(f"MARKERS{digit}")
    assert not is_epoch(digit * 13)
    assert not is_slot(digit * 20)


def test_numbers_of_any_length_are_none():
    """`int` refuses more than 4,300 digits with an error of its own."""
    from lakelatch.errors import ConfigError

    assert parse_log_name(f".a-0_20260101000000000.log.{'1' * 5000}") is None
    with pytest.raises(ConfigError, match="is not a whole number"):
        table_settings(
            {
                "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
                "hoodie.write.lock.wait_time_ms": "1" * 5000,
            },
            table_name="t",
            base_path="file:///t",
        )
