"""A JVM that holds a lock as it is told: the programs below tests/locks/java, compiled when they are needed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import require

SOURCES = Path(__file__).parents[1] / "locks" / "java"


class JvmPeer:
    """Takes orders on its standard input; `ask` returns its answer."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def tell(self, order: str) -> None:
        """Give an order; the answer is read with `answer`."""
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said, f"the JVM has ended:\n{self._log.read_text()[-3000:]}"
        return said

    def acquire(self, wait_s: float) -> bool:
        self.tell(f"acquire {int(wait_s * 1000)}")
        return self.answer() == "true"

    def release(self) -> None:
        self.tell("release")
        assert self.answer() == "released"

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def jvm_peer(program: str, class_path: str, folder: Path, *arguments: str) -> Iterator[JvmPeer]:
    """``program`` is the name of a class; its source is compiled into ``folder`` unless it is there."""
    java, javac = require("java"), require("javac")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / f"{program}.class").exists():
        made = subprocess.run(
            [javac, "-nowarn", "-cp", class_path, "-d", str(folder), str(SOURCES / f"{program}.java")],
            capture_output=True, text=True,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
    log = folder / f"{program}.log"
    command = [java, "-cp", f"{class_path}:{folder}", program, *arguments]
    pipe = subprocess.PIPE
    with log.open("wb") as errors, subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as jvm:
        peer = JvmPeer(jvm, log)
        try:
            while peer.answer() != "ready":
                pass  # libraries print, too
            yield peer
        finally:
            jvm.kill()
