"""One job of the demonstration of streams: ``python -m lakelatch.demo.stream_job JOB.json [doomed]``. It sends its events, batch
by batch.

Killed, it is started again and begins with its first batch: what has landed before changes nothing when it comes again. One that
is doomed is to be killed before it is at its end, so it waits for that before its last batch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ..occ.table import open as open_table
from .writer import Events, session_in


def main(job: str, *, doomed: bool = False) -> int:
    """Do the job; returns the exit code."""
    facts, events = json.loads(Path(job).read_text()), Events()
    with open_table(facts["table"], writer=facts["stream"]) as table:
        session: Any = None
        stream: Any
        if facts["spark"]:
            from .. import spark as latch

            session = session_in(facts["scratch"], facts["stream"])
            stream = latch.open(session, table).stream(facts["stream"])
        else:
            stream = table.stream(facts["stream"])
        events.tell("started")
        for number, batch in enumerate(facts["batches"]):
            if doomed and number == len(facts["batches"]) - 1:
                sys.stdin.read()  # until its parent is gone
            rows = session.read.parquet(batch) if session else pq.read_table(batch)
            done = stream.upsert(rows)
            events.tell("landed", batch=number, instant=done.instant, lost=len(done.losses))
        if session:
            session.stop()
    events.tell("done")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], doomed=sys.argv[2:] == ["doomed"]))
