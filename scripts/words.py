"""Count the words of each shelf of docs/, to see where a page grows: `python scripts/words.py`.

Code, comments, link targets and generated tables do not count.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The most words of a shelf of mkdocs.yml: more is not read.
BARS = {"For users": 15_000, "For maintainers": 12_000}
_GENERATED = re.compile(r"^<!-- generated -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_WRITTEN = "<!-- written by "  # begins a document whose tables a program writes
_TABLE = re.compile(r"^\|.*\n?", re.MULTILINE)
_NO_WORDS = re.compile(
    r"^---\n.*?^---$"  # the head of a page
    r"|^ *```.*?^ *```$"
    r"|<!--.*?-->"
    r"|^:::.*\n(?:    .*\n)*"  # a place for docstrings
    r"|(?<=\])\([^)]*\)|(?<=\])\[[^\]]*\]",
    re.MULTILINE | re.DOTALL,
)


def shelves() -> dict[str, list[Path]]:
    """Return the pages of each shelf, from the navigation in mkdocs.yml."""
    _, _, navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    found: dict[str, list[Path]] = {}
    for name, pages in re.findall(r"^  - (For \w+):\n((?:    .*\n)*)", navigation, re.MULTILINE):
        found[name] = [ROOT / "docs" / page for page in re.findall(r"[\w/-]+\.md", pages)]
    return found


def words(text: str) -> int:
    """Count the words that a reader reads."""
    text = _GENERATED.sub("", text)
    if _WRITTEN in text:
        text = _TABLE.sub("", text)
    return len(re.findall(r"\S*\w\S*", _NO_WORDS.sub("", text)))


def main() -> None:
    for shelf, pages in shelves().items():
        counts = {page: words(page.read_text()) for page in pages}
        print(f"{sum(counts.values()):6} {shelf}, of {BARS[shelf]}")
        for page, count in sorted(counts.items(), key=lambda each: -each[1]):
            print(f"{count:6}   {page.relative_to(ROOT / 'docs')}")


if __name__ == "__main__":
    main()
