"""``lakelatch why``.

JSON: ``instant``, ``operation``, ``writer``, ``outcome`` (landed, lost, aborted, rolled back, open, planned),
``completion``, ``took_s``, ``files``, ``rows``, ``bytes`` (of a loss: in vain), ``wrote`` and ``read`` in words,
``isolation``, ``winner`` (null, or ``instant``, ``operation``, ``writer``, ``completion``), ``rule`` (that decided, or the
reason of another end), ``ended_by``, ``overlap`` (of each file group ``group``, ``ours`` and ``theirs`` with ``inserts``,
``updates``, ``deletes``, ``rows``; ``rows_min`` and ``rows_max``: how many rows both changed), ``rounds``, ``merged_over``,
``ways`` (``change``, ``value``, ``lands``: both or ours, ``how``), ``attempts``, ``notes`` (what is no longer known) and
``note`` (of the commit, by its writer). Null where it is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..options import Json, Url
from ..output import bytes_text, count_text, duration_text, note_text, print_json, print_pairs, say

if TYPE_CHECKING:
    from ...occ.history import Account, Overlap
    from ...occ.history.why import Other

_SHOWN = 5


def why(
    url: Url,
    instant: Annotated[str, typer.Argument(metavar="T", help="Requested time, as `lakelatch timeline` prints it.")],
    *,
    json: Json = False,
) -> None:
    """Tell why a transaction lost: to whom, where, at what cost, and what would have let both land."""
    import lakelatch

    with lakelatch.open(url) as table:
        account = table.why(instant)
    if json:
        print_json(account.to_json())
        return
    for each in account.attempts:
        _print(each)
        say()
    _print(account)


def _print(account: Account) -> None:
    by = f" by {account.writer}" if account.writer else ""
    head = f"{account.instant} {account.operation.lower()}{by}: {account.outcome}"
    lines = [(head if account.outcome != "landed" else f"{head} at {account.completion}", "")]
    if cost := _cost(account):
        lines.append(("cost", cost))
    lines += [("wrote", _some(account.wrote)), ("read", _some(account.read))]
    if account.winner is not None:
        when = f"landed at {account.winner.completion}" if account.winner.completion else "was still open"
        lines.append(("winner", f"{_name(account.winner)}, {when}"))
    ended = f", by {account.ended_by}" if account.outcome == "rolled back" else ""
    lines.append(("because", f"{account.rule}{ended}" if account.rule else ""))
    lines.append(("overlap", "\n".join(_overlap(each) for each in account.overlap[:_SHOWN]) + _more(account.overlap)))
    if account.rounds:
        lines.append(("rounds", f"it had merged again {count_text(account.rounds, 'time')} before"))
    if account.merged_over:
        lines.append(("merged", "\n".join(f"onto what {_name(each)} changed" for each in account.merged_over)))
    for title, lands in (("both land", "both"), ("it lands", "ours")):
        lines.append((title, "\n".join(f"if you {each.how}" for each in account.ways if each.lands == lands)))
    lines.append(("its note", note_text(account.note)))
    lines.append(("note", "\n".join(account.notes)))
    say(lines[0][0])
    print_pairs([(f"  {name}", value) for name, value in lines[1:] if value])


def _cost(account: Account) -> str:
    parts = [] if account.took_s is None else [duration_text(account.took_s)]
    if account.files is not None:
        assert account.rows is not None
        assert account.bytes is not None
        parts += [
            count_text(account.files, "file"), count_text(account.rows, "row"), bytes_text(account.bytes)
        ]  # fmt: skip
    return ", ".join(parts) + (", all in vain" if parts and account.outcome == "lost" else "")


def _name(other: Other) -> str:
    return f"{other.instant} {other.operation.lower()}" + (f" by {other.writer}" if other.writer else "")


def _some(names: tuple[str, ...]) -> str:
    return "\n".join(names[:_SHOWN]) + _more(names)


def _more(names: tuple[object, ...]) -> str:
    return f"\nand {len(names) - _SHOWN:,} more; --json has all" if len(names) > _SHOWN else ""


def _overlap(each: Overlap) -> str:
    if each.rows_min is None or each.rows_max is None:
        return each.group
    low, high = each.rows_min, each.rows_max
    both = count_text(low, "row") if low == high else f"{low:,} to {count_text(high, 'row')}"
    return f"{each.group}: both changed {both}"
