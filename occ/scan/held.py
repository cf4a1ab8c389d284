"""A reader's lease for a long scan: written once the scan has run for one heartbeat interval, then kept alive.

    t=0   read: the state of completion time C
    t=1   a short scan has ended, and has written nothing
    t=10  a long one puts its lease "at C"; from now on no cleaning deletes a file of that state

Only a cleaning that retains less than the last ten seconds can be quicker. The scan then fails at the first deleted file;
earlier rows are right, because a data file never changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import LakeLatchError
from ..liveness import LeaseSender, ReaderLease, lease_path

if TYPE_CHECKING:
    from ..session import Session

_log = logging.getLogger("lakelatch.scan")


@contextmanager
def held(session: Session, completion: str | None) -> Iterator[None]:
    """Keep the files of that state while the block lasts; without a completion time only the retention keeps them."""
    if completion is None or not session.writable:
        yield
        return
    lease = ReaderLease(session.env.uuid(), session.writer, completion, exact=True, process=session.env.process())
    beating: LeaseSender | None = None
    refused = False

    def beat() -> None:
        nonlocal beating, refused
        if beating is not None:
            beating.beat()
        elif not refused:
            try:
                beating = LeaseSender(session.store, lease)
            except LakeLatchError as e:  # without write access the scan relies on the retention
                refused = True
                _log.info("%s: a scan has no reader's lease: %s", session.url, e)

    # The first beat comes after one interval, so a short scan writes nothing.
    timer = session.env.every(session.settings.heartbeat_interval_s, beat, name="lakelatch-reader")
    try:
        yield
    finally:
        timer.cancel(join_s=5.0)
        if beating is not None:
            session.store.delete(lease_path(lease.reader))
