"""One key per table: a table's address is a lock key in one spelling, whichever way it was written.

Two writers that spell the place of one table differently would otherwise hold two locks. The spelling is that of
storage/location.py. Whatever is no address is a name, and only its Unicode form and its edges are evened out. Two
names that Unicode takes for the same text share a lock, which costs a wait and never a commit.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from ..storage import location

# What is an address and not a name: an absolute path, or a scheme of a store. Others are never written to by us.
_ADDRESS = re.compile(r"/|(?:file|s3|s3a|s3n|gs|gcs|az|azure|abfs|abfss):/", re.IGNORECASE)


def normal_key(key: str) -> str:
    """The one spelling of ``key``. Raises `InputError` for an address that cannot be a table's."""
    key = key.lstrip()
    if not _ADDRESS.match(key):
        return unicodedata.normalize(
            "NFC", key.rstrip()
        )  # an address keeps its end: a folder's name may end in a space
    place = location.parse(key)
    return replace(place, path=unicodedata.normalize("NFC", place.path)).url
