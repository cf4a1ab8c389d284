"""Reports of results: text, and a page with pictures."""

from __future__ import annotations

from pathlib import Path

from ..results import Results
from .advice import Advice, advise
from .pictures import Chart, charts, standalone
from .render import aborted, conditions, lateness, markdown, page, table

__all__ = [
    "Advice",
    "Chart",
    "aborted",
    "advise",
    "charts",
    "conditions",
    "lateness",
    "markdown",
    "page",
    "standalone",
    "table",
    "write",
]


def write(results: Results) -> list[Path]:
    """Write ``report.html`` and ``report.md`` into the folder of the results."""
    made = {"report.html": page(results), "report.md": markdown(results)}
    for name, text in made.items():
        (results.folder / name).write_text(text, encoding="utf-8")
    return [results.folder / name for name in made]
