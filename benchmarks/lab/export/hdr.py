"""HdrHistogram logs: latencies in microseconds from the intended start, one interval per second.

The format is that of HdrHistogram's log writer 1.2, written by the package ``hdrhistogram``.
"""

from __future__ import annotations

import io
from collections import defaultdict
from typing import Any

from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogWriter

from ..operations import DONE, Operation

_MOST_US = 24 * 3600 * 1_000_000
_DIGITS = 3


def make(operations: list[Operation], facts: dict[str, Any]) -> bytes | None:
    """Return the log of a run; None if nothing was done."""
    found: dict[int, list[int]] = defaultdict(list)
    for each in operations:
        if each.outcome == DONE and not each.warm:
            found[int(max(each.ended, 0))].append(max(round((each.ended - each.intended) * 1e6), 1))
    if not found:
        return None
    out = io.StringIO()
    writer = HistogramLogWriter(out)
    writer.output_comment(
        f"{facts['scenario']}, {facts['writers']} writers, {facts['system']}: microseconds".replace("\n", " ")
    )
    writer.output_log_format_version()
    writer.output_legend()
    for second, values in sorted(found.items()):
        histogram = HdrHistogram(1, _MOST_US, _DIGITS)
        for value in values:
            histogram.record_value(min(value, _MOST_US))
        # The writer takes 0 for "not given", so the first interval begins a thousandth later.
        writer.output_interval_histogram(histogram, second or 0.001, second + 1, 1000.0)
    return out.getvalue().encode()
