"""What each reader says, in one form: rows without meta columns, as JSON values, sorted."""

from __future__ import annotations

import atexit
import datetime as dt
import decimal
import functools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

import lakelatch
from lakelatch.testing.contention import PATIENCE_S

from ..servers import missing

HOME = Path(__file__).parents[2] / ".cache" / "jvm"
PYTHON = HOME / "venv" / "bin" / "python"
BUNDLE = HOME / "jars" / "hudi-spark3.5-bundle_2.12-1.2.0.jar"
PROGRAM_S_MAX = 1500  # against hanging: a machine that others use takes three times as long as an idle one

Row = dict[str, Any]


def require_jvm() -> None:
    """Return when the JVM reader is there; otherwise skip, or fail where CI=true."""
    for needed in (PYTHON, BUNDLE):
        if not needed.exists():
            missing(f"the JVM reader lacks {needed.name}; scripts/ensure_jvm.sh installs it")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        missing("the JVM reader needs Java 17; scripts/ensure_jvm.sh installs it")


class JvmReader:
    """A process with one JVM session (jvm_reader.py), which answers until it is closed: starting one takes longer than
    most of what it is asked.
    """

    def __init__(self, folder: Path) -> None:
        self._log = folder / "jvm_reader.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(PYTHON), str(Path(__file__).with_name("jvm_reader.py")), str(BUNDLE)],
                cwd=folder, env=alone(PYTHON), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
            )  # fmt: skip

    def ask(self, requests: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
        """The answers, in the order of the requests. Where it says anything but that they are written, it ends: what
        it would say later is no answer to the next question.
        """
        question, answer = (folder / f"jvm_reader.{name}.json" for name in ("request", "answer"))
        question.write_text(json.dumps(requests), encoding="utf-8")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, which its answer tells
            print(json.dumps([str(question), str(answer)]), file=self._process.stdin, flush=True)
        ready, _, _ = select.select([self._process.stdout], [], [], PROGRAM_S_MAX)
        said = self._process.stdout.readline() if ready else "nothing in time"
        if said != "answered\n":
            self._process.kill()
            raise AssertionError(f"jvm_reader.py said {said!r}:\n{self._log.read_text()[-4000:]}")
        return json.loads(answer.read_text(encoding="utf-8"))

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@functools.cache
def _reader() -> JvmReader:
    """One for all tests of this process; it ends with it."""
    folder = tempfile.TemporaryDirectory(prefix="lakelatch-jvm-")
    made = JvmReader(Path(folder.name))
    atexit.register(folder.cleanup)
    atexit.register(made.close)
    return made


def ask_jvm(requests: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The answers of the JVM to all requests, in their order."""
    require_jvm()
    try:
        return _reader().ask(requests, folder)
    except AssertionError:
        _reader.cache_clear()  # the next question meets a new one
        raise


def write_by_spark(stories: Sequence[dict[str, Any]], folder: Path) -> list[tuple[str, str]]:
    """T and C of all writes of all stories (spark_writer.py), in their order."""
    question, answer, log = (folder / f"spark_writer.{name}" for name in ("request.json", "answer.json", "log"))
    question.write_text(json.dumps(stories), encoding="utf-8")
    python = Path(sys.executable)
    command = [str(python), str(Path(__file__).with_name("spark_writer.py")), str(question), str(answer)]
    with log.open("wb") as output:
        done = subprocess.run(
            command, env=alone(python), cwd=folder, stdout=output, stderr=output, timeout=PROGRAM_S_MAX, check=False
        )
    assert done.returncode == 0, f"spark_writer.py ended with {done.returncode}:\n{log.read_text()[-4000:]}"
    return [(instant, completion) for instant, completion in json.loads(answer.read_text(encoding="utf-8"))]


def alone(python: Path) -> dict[str, str]:
    """The environment of a program that has a Spark of its own, and must not meet the settings of another."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK", "PYTHON", "VIRTUAL_ENV"))}
    return ours | {"TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}


def by_hudi_rs(path: Path, options: HudiReadOptions | None = None) -> list[Row]:
    table = HudiTableBuilder.from_base_uri(str(path)).build()
    return [row for batch in table.read(options) for row in plain_rows(pa.table(batch))]


def rs_as_of(instant: str) -> HudiReadOptions:
    return HudiReadOptions().with_as_of_timestamp(instant)


def rs_between(begin: str, end: str | None) -> HudiReadOptions:
    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_start_timestamp(begin)
    return options.with_end_timestamp(end) if end else options


def rs_read_optimized() -> HudiReadOptions:
    return HudiReadOptions().with_hudi_option("hoodie.read.use.read_optimized.mode", "true")


def by_us(path: Path, **moment: Any) -> list[Row]:
    with lakelatch.open(str(path)) as table:
        return plain_rows(table.read(**moment).to_arrow())


def plain_rows(table: pa.Table) -> list[Row]:
    return [plain(row) for row in table.to_pylist()]


def plain(value: Any) -> Any:
    """The value as JSON, as jvm_reader.py makes it of the JVM's values."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {key: plain(each) for key, each in value}  # a map
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return value


def in_order(rows: Iterable[Row]) -> list[str]:
    """Rows as sorted lines of JSON: what two readers must have in common.

    Without meta columns, without nulls, and 5.0 as 5: travelling in time, a reader shows the columns, fields and types of then or
    those of now.
    """
    data = ({k: v for k, v in row.items() if not k.startswith("_hoodie_")} for row in rows)
    return sorted(json.dumps(_of_any_time(row), sort_keys=True, ensure_ascii=False) for row in data)


def _of_any_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _of_any_time(each) for key, each in value.items() if each is not None}
    if isinstance(value, float) and value and value.is_integer():
        return int(value)
    return [_of_any_time(each) for each in value] if isinstance(value, list) else value
