"""What README and docs show is run: Python and shell blocks in order, in one folder for each document.

A `text` block right below one shows its output, which is compared.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import lakelatch
from lakelatch.locks import open_provider
from lakelatch.locks.registry import known_schemes

from ..servers import BUCKET, KEY, versitygw
from ..servers.dynamodb_server import CREDENTIALS, dynamodb_local
from ..servers.redis_server import redis_server
from ..servers.zookeeper_server import zookeeper

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
# Would set up this machine, or run the whole suite inside of it.
_OUTSIDE = ("make ", "pip install", "git clone", "cd ", "sudo ", "apt-get ")
# Needs a service or a library that no test has: it has to compile, and what it names of ours has to be there.
_COMPILED = "<!-- compiled, not run -->\n"
_BLOCK = re.compile(rf"^({_COMPILED})?```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# A block, and the output that is shown below it.
_SHOWN = re.compile(r"^```(?:python|sh)\n((?:(?!```).*\n)*)^```\n\n```text\n((?:(?!```).*\n)*)^```$", re.MULTILINE)
# Different in each run, with a name instead: places, file ids, instants, processes, times and sizes.
_MASKS = [
    (r"file://[^\s:]+", "URL"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+\b", "FILE"),
    (r"\b20\d{15}\b", "INSTANT"),
    (r"\b[\w.-]+:\d+\b", "WRITER"),
    (r"\b\d[\d.]* (?:ms|s|B|kB)\b", "SIZE"),
    (r" +", " "),
]
_MARK = "\x1e"  # printed before each block

_EMPTY = re.compile(r"^(\+[-+]+\+\n)\|.*\|\n\1\1", re.MULTILINE)  # as DataFrame.show() prints one


@dataclass(frozen=True)
class Block:
    """One fenced block and the line it begins at."""

    kind: str
    text: str
    line: int
    compiled: bool = False

    @property
    def spark(self) -> bool:
        return "pyspark" in self.text or "lakelatch.spark" in self.text


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    return [Block(m[2], m[3], text.count("\n", 0, m.start(3)) + 1, bool(m[1])) for m in _BLOCK.finditer(text)]


def masked(text: str) -> str:
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def shown_outputs(document: Path) -> dict[int, str]:
    """Return the outputs that a document shows, by the line where their block begins."""
    text = document.read_text()
    return {text.count("\n", 0, m.start(1)) + 1: m[2] for m in _SHOWN.finditer(text)}


def script(document: Path, *, spark: bool) -> str:
    """The document as one program: Python blocks on their own lines, shell blocks as calls between them."""
    lines = ["import subprocess; sh = lambda line: subprocess.run(['bash', '-ec', line], check=True, timeout=1000)"]
    for block in blocks(document):
        if block.compiled:
            continue
        lines += [""] * (block.line - 2 - len(lines))  # so that a traceback names the document's line
        lines.append(f"print({_MARK + str(block.line) + chr(10)!r}, end='', flush=True)")
        if block.kind == "python":
            lines += block.text.splitlines() if spark or not block.spark else []
            continue
        here = []
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.startswith(("python benchmarks/", "python -m benchmarks.", "python examples/")):
                offered_by_program(line)
            elif not line.startswith(_OUTSIDE):
                here.append(line)
        whole = "\n".join(here)
        lines.append(f"sh({whole!r})")  # one shell, whose variables last as long as the block
    return "\n".join(lines)


def run(text: str, folder: Path) -> str:
    """What it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PATH": path},
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def offered_by_program(line: str) -> None:
    """The program is there, and knows the options; running it would take minutes."""
    words = shlex.split(line, comments=True)
    program = ROOT / (f"{words[2].replace('.', '/')}.py" if words[1] == "-m" else words[1])
    assert program.exists(), line
    known = program.read_text()
    for option in (w.split("=")[0] for w in words[2:] if w.startswith("--")):
        assert f'"{option}"' in known, f"{line}: {program.name} has no {option}"


# Whose examples need a server: each says what the document has, what to put there instead, and the environment.
Served = Iterator[tuple[str, str, dict[str, str]]]


@contextmanager
def on_zookeeper(folder: Path) -> Served:
    with zookeeper(folder) as node:
        yield "zk1:2181,zk2:2181,zk3:2181", f"127.0.0.1:{node.port}", {}


@contextmanager
def on_redis(folder: Path) -> Served:
    with redis_server(folder) as server:
        yield "redis://redis1/0", server.url, {}


@contextmanager
def on_dynamodb(folder: Path) -> Served:
    with dynamodb_local(folder, memory=True) as server:
        yield "/hudi_locks?key=", f"/hudi_locks?endpoint={server.endpoint}&key=", CREDENTIALS


@contextmanager
def on_s3(folder: Path) -> Served:
    secrets = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
    with versitygw(folder) as bucket:
        options = f"endpoint={bucket.options['endpoint']}&region=us-east-1&allow_http=1"
        yield "s3://bucket/locks?", f"s3://{BUCKET}/locks?{options}&", secrets


SERVED = {"zookeeper.md": on_zookeeper, "redis.md": on_redis, "dynamodb.md": on_dynamodb, "objects.md": on_s3}


@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if d.name not in SERVED and not all(b.compiled for b in blocks(d))],
    ids=lambda d: d.name,
)
def test_examples_run(document: Path, tmp_path: Path) -> None:
    printed = run(script(document, spark=False), tmp_path)
    outputs = {int(line): text for line, _, text in (part.partition("\n") for part in printed.split(_MARK)[1:])}
    for line, shown in shown_outputs(document).items():
        assert masked(outputs[line]) == masked(shown), f"{document.name}:{line} prints\n{outputs[line]}"


def test_outputs_are_compared_but_for_what_changes() -> None:
    one = "20261128211849541 upsert by vm:26090: lost\n  cost  61 ms, 2.5 kB"
    assert masked(one) == masked("20271128211849541 upsert by host-2.lan:7: lost\n  cost       9 s, 12 B\n")
    assert masked(one) != masked(one.replace("lost", "landed"))
    assert len(shown_outputs(ROOT / "docs/tutorial.md")) >= 6


@pytest.mark.server
@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.name in SERVED], ids=lambda d: d.name)
def test_examples_run_on_a_server(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = script(document, spark=False)
    with SERVED[document.name](tmp_path / "server") as (shown, instead, environment):
        assert shown in text
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        run(text.replace(shown, instead), tmp_path)


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if any(b.compiled for b in blocks(d))], ids=lambda d: d.name)
def test_examples_that_are_not_run_compile_and_name_what_is_there(document: Path) -> None:
    for block in blocks(document):
        if block.compiled:
            tree = ast.parse(block.text, f"{document.name}:{block.line}")
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "lakelatch"
                ):
                    assert node.attr in (*lakelatch.__all__, "spark"), f"{document.name}: lakelatch.{node.attr}"


@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if d.parent.name == "locks" or d == ROOT / "docs" / "locks.md"],
    ids=lambda d: d.name,
)
def test_lock_urls_that_are_shown_are_understood(document: Path) -> None:
    schemes = "|".join(map(re.escape, known_schemes()))
    shown = re.findall(rf"[`\"\n]((?:{schemes})://[^\s`\"<…]+)(?=[`\"\s])", document.read_text())
    assert shown
    for url in shown:
        open_provider(url).close()


@pytest.mark.spark
@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if any(b.spark and not b.compiled for b in blocks(d))], ids=lambda d: d.name
)
def test_spark_examples_run(document: Path, tmp_path: Path) -> None:
    shown = run(script(document, spark=True), tmp_path)
    assert not _EMPTY.search(shown), f"{document.name} shows a table without rows:\n{shown}"


@pytest.mark.parametrize("program", ["embed_pyarrow.py"])
def test_example_programs_run(program: str, tmp_path: Path) -> None:
    run_program(program, tmp_path)


@pytest.mark.spark
def test_the_spark_job_runs(tmp_path: Path) -> None:
    run_program("spark_job.py", tmp_path)


def run_program(program: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / program), str(folder / "table")],
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
