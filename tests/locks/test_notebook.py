"""Leases in a notebook: a kernel whose main thread runs an event loop, cell after cell, and that people interrupt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from lakelatch.locks import Holder, LockProvider, open_provider
from lakelatch.testing.contention import PATIENCE_S

from ..servers.redis_server import redis_server, until

pytestmark = [pytest.mark.server, pytest.mark.process]

KEY = "flights"
ANSWER_S = PATIENCE_S


class Notebook:
    """One kernel; `run` gives what a cell printed, and the name of its error."""

    def __init__(self, folder: Path) -> None:
        spec = KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
        self.manager = KernelManager(connection_file=str(folder / "kernel.json"))
        self.manager._kernel_spec = spec  # this environment's Python, whatever kernels the machine knows
        self.manager.start_kernel(cwd=folder)
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=ANSWER_S)

    def run(self, cell: str) -> str:
        self.client.execute(cell)
        return self.answer()

    def answer(self) -> str:
        """Of the cell that was sent last."""
        printed = ""
        while True:
            message = self.client.get_iopub_msg(timeout=ANSWER_S)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                printed += content["text"]
            elif kind == "error":
                printed += content["ename"]
            elif kind == "status" and content["execution_state"] == "idle" and _of_a_cell(message):
                return printed.strip()


def _of_a_cell(message: dict[str, Any]) -> bool:
    return bool(message["parent_header"].get("msg_type") == "execute_request")


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path)
    try:
        yield notebook
    finally:
        notebook.client.stop_channels()
        notebook.manager.shutdown_kernel(now=True)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as server:
        yield f"{server.url}?lease=12s"


def holder(locks: LockProvider) -> Holder:
    found = locks.inspect(KEY)
    assert found is not None
    return found


def test_a_lease_lives_from_cell_to_cell_and_an_interrupted_wait_leaves_nothing(notebook: Notebook, url: str) -> None:
    with open_provider(url) as locks:
        notebook.run(f"from lakelatch.locks import open_provider; locks = open_provider({url!r})")
        assert notebook.run(f"lease = locks.acquire({KEY!r}, wait_s=9); print(lease.token)") == "1"
        granted_until = holder(locks).until
        assert granted_until is not None
        until(lambda: (holder(locks).until or 0) > granted_until + 2, "no cell runs, and the lease is renewed")
        assert notebook.run("lease.ensure_held(fresh=True); print(lease.release().value)") == "released"

        with locks.acquire(KEY, wait_s=9):
            notebook.client.execute(f"locks.acquire({KEY!r}, wait_s=1000)")
            until(lambda: holder(locks).queue, "the cell waits in line")
            notebook.manager.interrupt_kernel()
            assert notebook.answer() == "KeyboardInterrupt"
            assert holder(locks).queue == ()
        assert notebook.run(f"print(locks.acquire({KEY!r}, wait_s=9).token)") == "3"
    notebook.client.shutdown()
    until(lambda: not notebook.manager.is_alive(), "the kernel ends by itself, although it holds a lease")
