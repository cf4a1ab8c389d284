"""The rights that the documents tell to give: what is tried is what is told."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def policy(page: str) -> str:
    """The code behind ``<!-- policy writer -->`` of a page."""
    (found,) = re.findall(r"<!-- policy writer -->\n```\w+\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return str(found)
