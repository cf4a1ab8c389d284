"""Latencies of object stores as they were published, for benchmarks that draw from them.

Medians of S3 Standard are those of the objects of a commit, the others those of a compare-and-set on one object, whose range
is taken for median and 99th percentile (C. Douglas, "Conditional Operations in Object Stores", January 2026). Not published, and
assumed here: the 99th percentile of S3 Standard is three times its median, and a read of the others takes the share of a write
that it takes on S3 Standard. Drawn log-normal.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

_AT_99 = 2.326  # standard deviations of a normal distribution
_WRITES = ("put", "replace", "delete", "create")


@dataclass(frozen=True)
class Published:
    """Milliseconds of a request: medians of reads (and lists) and of writes, and how much longer one in a hundred takes."""

    read_ms: float
    write_ms: float
    tail: float

    def draw(self, luck: random.Random, step: str) -> float:
        """Return the seconds of one request; ``step`` begins with its kind."""
        median = self.write_ms if step.startswith(_WRITES) else self.read_ms
        return luck.lognormvariate(math.log(median / 1000), math.log(self.tail) / _AT_99)


STORES = {
    "s3-standard": Published(27, 60, 3.0),
    "s3-express": Published(6.3, 14, 26 / 14),
    "azure-premium": Published(27, 60, 350 / 60),
}
