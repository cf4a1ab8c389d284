"""Views for notebooks: facts and rows as HTML, with everything that tables, logs or users chose escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .plain_text import visible

_LEFT = "'text-align:left'"
_LONG = 500  # characters of a cell


def view(
    title: str,
    facts: Iterable[tuple[str, object]] = (),
    *,
    headers: Sequence[str] = (),
    rows: Iterable[Sequence[object]] = (),
    below: str = "",
) -> str:
    """Return a heading, facts by name and a table of rows as HTML. Facts that are None or "" are left out."""
    said = "".join(
        f"<tr><th style={_LEFT}>{_text(name)}</th><td style={_LEFT}>{_cell(value)}</td></tr>"
        for name, value in facts
        if value is not None and str(value)
    )
    head = "".join(f"<th style={_LEFT}>{_text(each)}</th>" for each in headers)
    body = "".join(f"<tr>{''.join(f'<td style={_LEFT}>{_cell(each)}</td>' for each in row)}</tr>" for row in rows)
    return (
        f"<div><strong>{_text(title)}</strong>"
        + (f"<table>{said}</table>" if said else "")
        + (f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if head else "")
        + (f"<p>{_text(below)}</p>" if below else "")
        + "</div>"
    )


def _text(value: object) -> str:
    return escape(visible(str(value)))


def _cell(value: object) -> str:
    text = str(value)
    return _text(text if len(text) <= _LONG else text[:_LONG] + "...")
