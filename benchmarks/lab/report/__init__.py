"""Reports of results: text, a page, comparisons."""

from __future__ import annotations

from pathlib import Path

from ..results import Results
from .advice import Advice, advise
from .charts import Chart, charts, standalone
from .compare import Difference, compare
from .markdown import aborted, conditions, lateness, markdown, table
from .page import page

__all__ = [
    "Advice",
    "Chart",
    "Difference",
    "aborted",
    "advise",
    "charts",
    "compare",
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
