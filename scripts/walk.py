"""Print how far one upserted row and one read walk through the library: calls, files, and returns to a file left before;
and the CPU time of an insert of ten rows on a disk in memory.

    python scripts/walk.py            figures
    python scripts/walk.py --files    also each file, in the order in which the walk reaches it, with its number of calls

A handle is warm: it has written and read before. Only the library's own functions count, on the calling thread.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import lakelatch

_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"})
_ROUNDS, _INSERTS = 8, 20
ROOT = Path(lakelatch.__file__).resolve().parents[2]


class Walk:
    """Counts calls of library functions; a profiler hook while it is entered."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.returns = 0
        self._names: dict[str, str | None] = {}
        self._file: str | None = None

    def __enter__(self) -> Walk:
        sys.setprofile(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _hook(self, frame: FrameType, event: str, _: Any) -> None:
        # A resumed generator is a call to the interpreter, and so is a comprehension: neither is one to who reads.
        if event != "call" or frame.f_lasti > 0 or frame.f_code.co_name in _COMPREHENSIONS:
            return
        name = self._name(frame.f_code.co_filename)
        if name is None:
            return
        if name != self._file:
            self.returns += name in self.calls
            self._file = name
        self.calls[name] += 1

    def _name(self, path: str) -> str | None:
        """Return the file's path below the checkout; None where it is not the library's."""
        if path not in self._names:
            real = Path("/" if path.startswith("<") else path).resolve()  # "<string>" is no file
            own = real.is_relative_to(ROOT) and ".venv" not in real.parts and real != Path(__file__).resolve()
            self._names[path] = str(real.relative_to(ROOT)) if own else None
        return self._names[path]


def walked(work: Callable[[], object]) -> Walk:
    """Return the walk of ``work`` once it has been done three times, so that nothing is imported or opened for the first time."""
    for _ in range(3):
        work()
    with Walk() as walk:
        work()
    return walk


def insert_cpu_ms() -> float:
    """Return the CPU time of an insert, in milliseconds: the least of some averages, as other processes disturb the rest."""
    memory = Path("/dev", "shm")
    where = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder, lakelatch.create(f"{folder}/t", record_key="id") as table:
        averages = []
        for _ in range(_ROUNDS):
            began = time.process_time()
            for _ in range(_INSERTS):
                table.insert([{"id": str(n), "v": n} for n in range(10)])
            averages.append((time.process_time() - began) / _INSERTS)
    return 1000 * min(averages)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--files", action="store_true", help="name the files")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, lakelatch.create(f"{folder}/t", record_key="id") as table:
        row = [{"id": 1, "v": 1}]
        for name, work in (("upsert", lambda: table.upsert(row)), ("read", lambda: table.read().to_arrow())):
            walk = walked(work)
            print(f"{name}: {walk.calls.total()} calls, {len(walk.calls)} files, {walk.returns} returns")
            if given.files:
                for file, count in walk.calls.items():
                    print(f"  {count:5} {file}")
    print(f"insert of ten rows: {insert_cpu_ms():.1f} ms of CPU")


if __name__ == "__main__":
    main()
