"""Columns of a stream with a merger: the contributions of events, and the mergers that are possible.

Events come late, and a compaction may merge some before others arrive. So a merger must give the same result in any order,
with or without compactions in between. A null contributes nothing: after a compaction an emptied row has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError, LakeLatchError
from ..hudi.merge import Broken, Tried, subject_of
from ..hudi.table import RECORD_KEY, array_of_column
from ..mergers import Count, Groups, Laws, Merger, Sum, contributions, find
from .declaration import Stream, scalar

_WANTED = ("order", "one_at_a_time", "compaction", "replay")
SHARE = 1000  # a sum has room for this many of the largest contributions, because writers add without seeing the total
_DIGITS = 18  # the digits of a decimal with room for that


@dataclass(frozen=True)
class Contributed:
    """A merger to which a null contributes nothing."""

    inner: Merger

    @property
    def samples(self) -> Callable[[pa.DataType], list[Any]] | None:
        """The inner merger's, if it has some."""
        return getattr(self.inner, "samples", None)

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the inner merger's laws."""
        return self.inner.laws(kind)

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the inner merger's contributions."""
        return self.inner.lift(values, kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the inner merger's result for the values that are not null; null for a group without any."""
        if not values.null_count or not len(groups):
            return self.inner.merge(values, groups)
        # Nulls are dropped before the merge, and with them groups that have nothing else; these are null in the result.
        counts = np.add.reduceat(np.asarray(values.is_valid()).astype(np.int64), groups.starts)
        some = counts > 0
        if not some.any():
            return pa.nulls(len(groups), values.type)
        found = self.inner.merge(values.drop_null(), Groups(np.concatenate([[0], np.cumsum(counts[some])])))
        return found.take(pa.array(np.cumsum(some) - 1, mask=~some))


def mergers_of(stream: Stream, columns: Iterable[str]) -> dict[str, Contributed]:
    """Return the mergers of the columns that have one. Raises `ConfigError` if one cannot be imported here."""
    specs = dict(stream.merge)
    return {column: Contributed(find(specs[column])) for column in columns if column in specs}


def lifted(stream: Stream, rows: pa.Table) -> pa.Table:
    """Return the rows with each value replaced by its contribution.

    Raises:
        ConfigError: a merger cannot be imported here.
        InputError: a value cannot contribute, or is too large.
    """
    for name, merger in mergers_of(stream, rows.column_names).items():
        place = rows.schema.get_field_index(name)
        values = contributions(merger, rows.schema.field(place), rows.column(place))
        _refuse_too_much(name, merger.inner, values)
        rows = rows.set_column(place, pa.field(name, values.type), values)
    return rows


def limit_of(kind: pa.DataType) -> Any:
    """Return the value that a sum of this type cannot reach."""
    if pa.types.is_decimal(kind):
        return Decimal(10) ** (kind.precision - kind.scale)
    return 2**64 if kind == pa.uint64() else 2**63


def zero_of(kind: pa.DataType) -> pa.Scalar:
    """Return zero in a type that has sums."""
    return pa.scalar(Decimal(0) if pa.types.is_decimal(kind) else 0, kind)


def _refuse_too_much(column: str, merger: Merger, values: pa.Array) -> None:
    kind = values.type
    if not isinstance(merger, Sum | Count) or pa.types.is_floating(kind):
        return
    most: Any = limit_of(kind) / SHARE if pa.types.is_decimal(kind) else limit_of(kind) // SHARE
    if pa.types.is_decimal(kind):
        values = values.cast(pa.decimal256(76, kind.scale))
    most = pa.scalar(most) if pa.types.is_decimal(kind) else pa.scalar(most, kind)
    beyond = pc.greater(values, most)
    if kind != pa.uint64():
        beyond = pc.or_(beyond, pc.less(values, pc.negate(most)))
    if pc.any(beyond, min_count=0).as_py():
        some = values.filter(beyond)[0].as_py()
        raise InputError(
            f"column {column!r}: {some} is more than a thousandth of what {kind} holds, and is added to a sum that its writer "
            "has not seen, which a few of its kind would make too large for the column; send smaller ones, or take a "
            "column of a wider type; nothing was written",
            column=column,
        )


def needs_batch(stream: Stream, schema: pa.Schema) -> str:
    """Return a column to which a repeated event would contribute twice; "" if there is none."""
    if stream.event_id:
        return ""
    for name, merger in mergers_of(stream, [column for column in stream.columns if column in schema.names]).items():
        if not merger.laws(schema.field(name).type).idempotent:
            return name
    return ""


def refuse_mergers(stream: Stream, schema: pa.Schema) -> None:
    """Raise `InputError` for a merger that these columns cannot have, with records that show why where some are known."""
    for column, spec in stream.merge:
        kind, what = (
            schema.field(column).type,
            f"stream {stream.name!r}: column {column!r} of {schema.field(column).type}",
        )
        try:
            merger = Contributed(find(spec))
            said = merger.laws(kind)
        except LakeLatchError as e:
            raise InputError(f"{what} can't have the merger {spec}: {e}", column=column, merger=spec) from e
        narrow = kind.bit_width < 64 if pa.types.is_integer(kind) else getattr(kind, "precision", _DIGITS) < _DIGITS
        if isinstance(merger.inner, Sum | Count) and narrow:
            raise InputError(
                f"{what} can't have the merger {spec}: who adds to it has not seen the total, so one that does not fit would be "
                f"found when it is read; take a column of int64, or of decimals of at least {_DIGITS} digits",
                column=column,
                merger=spec,
            )
        if stream.event_id:
            continue  # its events are all merged at once, in one order, so a merger has no law to keep
        # Checking laws costs more than the rest of a declaration, and each job that starts declares its stream again: cache it.
        broken = (_broken if merger.inner.__hash__ is None else _broken_once)(merger, kind, said, f"{spec} of {kind}")
        if broken:
            raise InputError(f"{what} can't have the merger {spec}: {broken}", column=column, merger=spec)
        for each in stream.defaults:
            if each.column == column:
                _refuse_too_much(column, merger.inner, pa.array([scalar(each, kind).as_py()], kind))


def _broken(merger: Contributed, kind: pa.DataType, said: Laws, name: str) -> str:
    try:
        tried = Tried(*subject_of(merger, kind), Laws(True, True, said.idempotent), event_time=False, name=name)
        found: Broken | None = next(iter(tried.broken(_WANTED)), None)
    except InputError:
        found = None  # no sample values of the type: trust its own laws
    if found is None and said.commutative and said.associative:
        return ""
    law = found.law if found else "order" if not said.commutative else "compaction"
    shown = f"\n{found}\n" if found else f", as it says itself of {kind}. "
    if law == "replay":
        return f"it says that a value may come twice, and it does not keep that law ('replay').{shown}Let its laws() tell so"
    step = (
        "Use a merger whose result does not depend on the order (sum, count, min, max, bool_and, bool_or, collect_set, top_n, "
        "merge_map(by=...), nested_update(by=...), theta), or none: without one the column has the value of the newest event. "
        "Or keep the stream's events "
        "(event_id=..., events=...): of these every merger is possible"
    )
    if pa.types.is_floating(kind) and said.commutative:
        step = (
            "Floats are rounded at every step. Keep the stream's events (event_id=..., events=...), which are merged in one "
            "order; for a sum, take a column of decimals, or of whole numbers"
        )
    why = "events come late" if law == "order" else "a compaction merges some values ahead of others"
    return f"it does not keep the law {law!r}, and {why}.{shown}{step}"


_broken_once = lru_cache(maxsize=256)(_broken)


# Sums of a stream stay within what their columns hold, though writers add without seeing each other's events.
#
#     an event         at most a thousandth of the range (`contributions`)
#     a write          of one key: so too, all its events together
#     a small one      less than a two-billionth, on totals within a quarter of the range: written unseen
#     any other        the writer reads the totals that its snapshot has, and one that would pass half of the range is refused
#
# So a total passes half of the range only by writers that do not see each other, a thousandth each, and leaves it by none that
# look: it can always be read, and be compacted.

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
        totals: returns the present values of a column by record key; of a stream that keeps its events `kept.gross_of`.
    """
    found = mergers_of(stream, events.column_names).items()
    sums = [name for name, merger in found if isinstance(merger.inner, Sum)]
    sums = [name for name in sums if not pa.types.is_floating(events.schema.field(name).type)]
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
            if stream.event_id:  # any of them may be taken back
                gain, loss = gain - loss, 0
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
