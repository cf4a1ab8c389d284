"""Normalise a table's address to one lock key.

Two writers that spell the same table differently would otherwise hold two locks. Addresses are
spelled as in storage/location.py. Any other key is a name: only its Unicode form and surrounding
blanks are normalised. Two names that Unicode considers equal share a lock, which costs a wait but
never a commit.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from ..errors import InputError
from ..plain_text import may_hold_password
from ..storage import location, may_hold_secret

# An absolute path or the scheme of a store is an address; anything else is a name.
_ADDRESS = re.compile(r"/|(?:file|s3|s3a|s3n|gs|gcs|az|azure|abfs|abfss):/", re.IGNORECASE)


def normal_key(key: str) -> str:
    """Return the canonical spelling of ``key``.

    Raises `InputError` for an address that cannot be a table's.
    """
    key = key.lstrip()
    _refuse_unstorable(key)
    if not _ADDRESS.match(key):
        return unicodedata.normalize(
            "NFC", key.rstrip()
        )  # an address keeps its end: a folder's name may end in a space
    place = location.parse(key)
    return replace(place, path=unicodedata.normalize("NFC", place.path)).url


def _refuse_unstorable(key: str) -> None:
    """Raise `InputError` for a key that is not UTF-8, or a URL that may hold a password: keys become file names."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InputError(f"the key {key!r} of a lock is no UTF-8 text, and would be another key elsewhere") from None
    if "//" in key and (may_hold_secret(key) or (may_hold_password(key) and not _ADDRESS.match(key))):
        raise InputError(
            "the key of a lock may hold a password, so it is not shown: keys are stored and printed. The lock's URL comes "
            "first, its key second"
        )
