"""What is made of results: text, a page, comparisons."""

from __future__ import annotations

from pathlib import Path

from ..results import Results
from .advice import Advice, advise
from .compare import Difference, compare
from .markdown import aborted, conditions, markdown
from .page import page

__all__ = ["Advice", "Difference", "aborted", "advise", "compare", "conditions", "markdown", "page", "write"]


def write(results: Results) -> list[Path]:
    """Put ``report.html`` and ``report.md`` into the folder of the results."""
    made = {"report.html": page(results), "report.md": markdown(results)}
    for name, text in made.items():
        (results.folder / name).write_text(text, encoding="utf-8")
    return [results.folder / name for name in made]
