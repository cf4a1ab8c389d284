"""Reading rows: lazy, parallel scans of one state of the table, narrowed by columns and a condition."""

from .difference import Difference, differences
from .feed import ChangeFeed, change_feed
from .of_table import changes, scan, scan_slices, scan_view, seen, wanted_of
from .parts import ScanPart
from .pruning import only_partitions, partitions_that_may_match, times_that_may_match
from .scan import Explanation, Scan, ScannedFile
