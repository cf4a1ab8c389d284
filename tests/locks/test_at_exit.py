"""What a process holds when it ends is given back."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakelatch.environment import SYSTEM
from lakelatch.locks.core import at_exit
from lakelatch.testing.contention import PATIENCE_S, until

from .scripted import ScriptedBackend, ScriptedGrant, provider

_END = """
import signal, sys, time
from lakelatch.locks import open_provider
if sys.argv[2] == "own handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
lease = open_provider(sys.argv[1]).acquire("k", wait_s=60)
if sys.argv[2] == "later handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(flush=True)
if sys.argv[2] == "error":
    raise KeyError("an error that nobody handles")
if sys.argv[2] != "end":
    while True:
        time.sleep(0.1)  # a signal that comes in the moment before a wait is heard after it
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("how", "code", "given_back"),
    [
        ("end", 0, True),
        ("error", 1, True),
        ("terminated", -signal.SIGTERM, True),
        ("own handler", 7, True),
        ("later handler", 7, True),
        ("killed", -signal.SIGKILL, False),
    ],
)
def test_a_process_that_ends_gives_back_what_it_holds(tmp_path: Path, how: str, code: int, given_back: bool) -> None:
    command = [sys.executable, "-c", _END, f"file://{tmp_path}/locks?lease=1h", how]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"\n"
            if how not in ("end", "error"):
                child.send_signal(signal.SIGKILL if how == "killed" else signal.SIGTERM)
            assert child.wait(PATIENCE_S) == code
        finally:
            child.kill()
    assert bool(list(tmp_path.rglob("*.released"))) is given_back


def test_a_server_that_hangs_holds_up_the_end_for_a_moment_only() -> None:
    hangs, quick = ScriptedGrant(1), ScriptedGrant(2)
    hangs.hangs.clear()
    held = [
        provider(ScriptedBackend(grant), SYSTEM, place=name).acquire("k", wait_s=0)
        for name, grant in (("hangs", hangs), ("quick", quick))
    ]
    ended = threading.Thread(target=at_exit.give_back, args=(0.2,))
    ended.start()
    ended.join(PATIENCE_S)
    assert not ended.is_alive()
    until(lambda: (hangs.releases, quick.releases) == (1, 1), "one keeps the other from being given back")
    until(lambda: held[1].lost == "released", "it is not given back")
    hangs.hangs.set()
