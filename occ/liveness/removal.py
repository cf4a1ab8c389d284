"""Delete data files named in notes: markers, plans and log entries, which others may have written.

Permission to write a note must not be enough to delete any file. So a name counts only if a data file of the
table can have it, in a partition, and never behind a symbolic link (`Store.delete` refuses to follow one).
"""

from __future__ import annotations

import logging

from ...errors import InputError
from ...hudi.files import BaseFile, LogFile, lies_outside
from ...storage import Store

_log = logging.getLogger("lakelatch.removal")


def delete_data_file(store: Store, path: str, *, instant: str | None = None) -> bool:
    """Delete a data file, of that T if ``instant`` is given. False if the name is left alone, which is logged."""
    file = BaseFile.at(path, 0) or LogFile.at(path, 0)
    if file is None or lies_outside(path):
        why = "it is no name of a data file in this table"
    elif instant is not None and file.instant != instant:
        why = f"it is no file of {instant}"
    else:
        try:
            store.delete(path)
        except InputError as e:
            why = str(e)
        else:
            return True
    _log.warning("%s: %r was named to be deleted and is left alone: %s", store.url, path, why)
    return False
