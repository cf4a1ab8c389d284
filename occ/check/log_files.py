"""The check that the log files that readers merge are whole."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import LakeLatchError
from ...hudi.timeline import FileSlice
from ...storage import Store
from .findings import RESTORE, Findings


def check_logs(store: Store, slices: Iterable[FileSlice], out: Findings) -> None:
    """Read the frame of each block in the newest file slices, without decoding rows; report torn ones."""
    for log in (log for each in slices for log in each.logs):
        # With Arrow, which a table without log files needs no.
        from ...hudi.files import Torn, read_blocks

        try:
            stored = store.get(log.path)
            blocks = read_blocks(stored.body, log.path) if stored else []
        except LakeLatchError as e:
            out.unchecked.append(f"a log file: {e}")
            continue
        for torn in (block for block in blocks if isinstance(block, Torn)):
            message = f"{log.path} is torn from byte {torn.start} to {torn.end}: no reader counts what was there"
            out.add("log-torn", log.path, message, RESTORE)
