"""The part of `check` that compares the kept key ranges with the footers of the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...hudi.files import BaseFile, Listing
from ..entries import RANGES, decode_ranges, ranges_path
from .findings import Findings
from .footers import Footer

if TYPE_CHECKING:
    from ...storage import Store


def check_key_ranges(store: Store, listing: Listing, footers: Mapping[str, Footer], out: Findings) -> None:
    """What is kept of a file is what its footer says: by anything else an upsert passes over rows that it should find.

    An object that is torn, or names files that are gone, does no harm.
    """
    there = {f"{RANGES}/{name}" for name in store.names(RANGES)}
    if not there:
        return
    bases: dict[str, list[BaseFile]] = defaultdict(list)
    for base in listing.bases:
        bases[base.partition].append(base)
    for partition, files in bases.items():
        path = ranges_path(partition)
        body = store.body(path) if path in there else None
        ranges = (decode_ranges(partition, body) if body is not None else None) or {}
        for base in files:
            size, low, high = ranges.get(base.path.rpartition("/")[2], (-1, b"", b""))
            footer = footers.get(base.path)
            if size != base.size or footer is None or len(footer.keys) != 2:  # nobody goes by it
                continue
            if footer.keys != (low.decode(), high.decode()):
                out.add(
                    "key-range-kept",
                    path,
                    f"{path} keeps other keys of {base.path} than its footer has, so upserts pass over rows there and write "
                    "them a second time",
                    f"delete {path}, which only saves time, and look for duplicate keys (`lakelatch check --deep`)",
                )
