"""The check of the stored key ranges against the files' footers."""

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
    """Report stored ranges that differ from a file's footer: an upsert would miss rows there and insert them again.

    An object that is torn, or names deleted files, is harmless.
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
            # Writers ignore such an entry.
            if size != base.size or footer is None or len(footer.keys) != 2:
                continue
            if footer.keys != (low.decode(), high.decode()):
                out.add(
                    "key-range-kept",
                    path,
                    f"{path} keeps other keys of {base.path} than its footer has, so upserts pass over rows there and write "
                    "them a second time",
                    f"delete {path}, which only saves time, and look for duplicate keys (`lakelatch check --deep`)",
                )
