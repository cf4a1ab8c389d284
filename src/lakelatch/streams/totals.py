"""Sums of a stream stay within what their columns hold, though writers add without seeing each other's events.

    an event         at most a thousandth of the range (`contributions`)
    a write          of one key: so too, all its events together
    a small one      less than a two-billionth, on totals within a quarter of the range: written unseen
    any other        the writer reads the totals that its snapshot has, and one that would pass half of the range is refused

So a total passes half of the range only by writers that do not see each other, a thousandth each, and leaves it by none that
look: it can always be read, and be compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..hudi.table import RECORD_KEY, array_of_column
from ..mergers import Groups, Sum
from .contributions import SHARE, limit_of, mergers_of, zero_of
from .declaration import Stream

_SMALL, _QUARTER, _HALF = 2**31, 4, 2  # parts of the range


def keep_within_range(
    stream: Stream,
    events: pa.Table,
    stored: Callable[[str], Any],
    totals: Callable[[str], Mapping[str, Any]],
) -> None:
    """Raise `InputError` for a key whose total these events could bring out of range, before they are written.

    Args:
        events: as `folded` gives them, the rows of a key adjacent.
        stored: returns the largest absolute value that a base file has in a column; None if that is not known.
        totals: returns the present values of a column by record key.
    """
    sums = [name for name, merger in mergers_of(stream, events.column_names).items() if isinstance(merger.inner, Sum)]
    if not sums or not events.num_rows:
        return
    keys = array_of_column(events, RECORD_KEY)
    codes = np.asarray(pc.dictionary_encode(keys).indices)
    starts = np.flatnonzero(np.append([True], np.diff(codes) != 0))
    groups, owners = Groups(np.append(starts, len(codes))), keys.take(pa.array(starts))
    for name in sums:
        values = array_of_column(events, name)
        kind, limit, zero = values.type, limit_of(values.type), zero_of(values.type)
        values = values.fill_null(zero)
        # Gains and losses by themselves: of events that cancel each other one may turn out to be too old.
        try:
            gains = Sum().merge(pc.if_else(pc.greater(values, zero), values, zero), groups)
            losses = Sum().merge(pc.if_else(pc.less(values, zero), values, zero), groups)
        except InputError as e:
            raise InputError(f"column {name!r}: the events of one key do not add up: {e}; {_STEP}", column=name) from e
        by_key = list(zip(owners.to_pylist(), gains.to_pylist(), losses.to_pylist(), strict=True))
        most = max(pc.max(gains).as_py(), -pc.min(losses).as_py())
        if most > limit / SHARE:
            key = next(key for key, gain, loss in by_key if max(gain, -loss) > limit / SHARE)
            raise InputError(
                f"column {name!r}: the events of key {key!r} add more than a thousandth of what {kind} holds in one write, which "
                f"others do not see while they add to it; {_STEP}",
                column=name,
                key=key,
            )
        known = stored(name)
        if most <= limit / _SMALL and known is not None and known <= limit / _QUARTER:
            continue
        now = totals(name)
        for key, gain, loss in by_key:
            total = now.get(key) or 0
            if (gain and total + gain > limit / _HALF) or (loss and total + loss < -limit / _HALF):
                raise InputError(
                    f"column {name!r}: these events would bring the total of key {key!r} from {total} to {total + gain + loss}, "
                    f"beyond half of what {kind} holds, and one that does not fit could not be read; {_STEP}",
                    column=name,
                    key=key,
                )


_STEP = (
    "nothing was written. Send less of that key, empty its column with a delete of the stream, or take a column of a wider "
    "type"
)
