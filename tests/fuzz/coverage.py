"""``python -m tests.fuzz.coverage SECONDS [TARGET ...]``: the targets for so long each, guided by the branches they reach.

It needs atheris, which has wheels for Linux alone and is no part of ``make venv``: ``pip install atheris``. Each target runs in
a process of its own, because libFuzzer ends its process, and its inputs stay below ``build/fuzz``. A finding is printed with
its value; it becomes a case of ``FOUND`` in test_fuzz.py.
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
from pathlib import Path

CORPUS = Path("build/fuzz")


def main(seconds: float, names: list[str]) -> None:
    from .targets import TARGETS

    failed = []
    for name in names or TARGETS:
        done = subprocess.run([sys.executable, "-m", "tests.fuzz.coverage", "--one", name, str(seconds)], check=False)
        failed += [name] if done.returncode else []
    sys.exit(f"crashed: {', '.join(failed)}" if failed else 0)


def one(name: str, seconds: float) -> None:
    """Run one target; libFuzzer ends the process."""
    import atheris

    logging.disable()  # every refusal is told, and here nearly all is refused
    with atheris.instrument_imports(include=["lakelatch"]):
        from .targets import TARGETS

    from hypothesis import given, settings

    target = TARGETS[name]
    run = settings(database=None, deadline=None)(given(target.given)(target.__call__))
    corpus = CORPUS / name.replace(" ", "-").replace(",", "")
    corpus.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={int(seconds)}", "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1"]
    print(f"--- {name}", flush=True)
    # libFuzzer exits with the interpreter's lock held, on which Arrow's threads may wait, and it for them.
    leave = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os._exit(0))
    ctypes.CDLL(None).__cxa_atexit(leave, None, None)
    atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={corpus}/", *options], run.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], float(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0, sys.argv[2:])
