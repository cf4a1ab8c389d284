"""The notes that our writer leaves in a Parquet footer, beside Hudi's own keys."""

from __future__ import annotations

import json
from typing import Any

NOTE = "lakelatch.file"
STREAM_NOTE = "lakelatch.stream"  # of a block: its rows are events of a stream (`lakelatch.streams`)


def note_of(footer: Any) -> dict[str, Any]:
    """Return the note: ``digest``, counts, ``checksums``, and ``key``, the column that holds the record keys. {} without one."""
    try:
        found = json.loads((footer.metadata or {}).get(NOTE.encode(), b"{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
