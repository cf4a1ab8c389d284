"""Reading rows: lazy scans of a state of the table, by all cores, of what a condition leaves."""

from .explanation import Explanation, ScannedFile
from .of_table import changes, scan, scan_slices, scan_view, wanted_of
from .pruning import only_partitions, partitions_that_may_match
from .scan import Scan

__all__ = [
    "Explanation",
    "Scan",
    "ScannedFile",
    "changes",
    "only_partitions",
    "partitions_that_may_match",
    "scan",
    "scan_slices",
    "scan_view",
    "wanted_of",
]
