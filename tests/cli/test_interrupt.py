"""Ctrl-C ends a command wherever it comes, also where Python itself would lose it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakelatch.testing.contention import PATIENCE_S

HEAD = """
import os, signal, sys, threading, time, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell's background job has it ignored
from lakelatch.cli.outcome import arrives
arrives()
def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass
class Thing:
    pass
"""
TAIL = """
    threading.Event().wait(60)
except KeyboardInterrupt:
    print("interrupted")
"""
PLACES = {
    "plain": "ctrl_c()",
    "destructor": "Thing.__del__ = lambda self: ctrl_c(); Thing()",
    "weak reference": "thing = Thing(); ref = weakref.ref(thing, lambda _: ctrl_c()); del thing",
    "import that is tried": "import hopeful",
    "import that does not end": "import endless",
    "destructor that does not end": "Thing.__del__ = lambda self: endless(); Thing()",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_ctrl_c_arrives(place: str, tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text("import __main__\n__main__.ctrl_c()\n")
    (tmp_path / "hopeful.py").write_text("try:\n    import asks\nexcept BaseException:\n    pass\n")
    (tmp_path / "endless.py").write_text("import __main__\n__main__.endless()\n")
    endless = "def endless():\n    ctrl_c()\n    while True:\n        time.sleep(0.01)\n"
    program = f"{HEAD}{endless}sys.path.insert(0, {str(tmp_path)!r})\ntry:\n    {place}{TAIL}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_whoever_ignores_it_goes_on_ignoring_it() -> None:
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from lakelatch.cli.outcome import arrives; arrives()\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == "True\n", done.stderr
