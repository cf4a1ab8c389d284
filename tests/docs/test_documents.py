"""What the documents say of the code is still so: settings, tests that prove promises, links, words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import lakelatch
from lakelatch import Settings
from scripts.words import BARS, shelves, words

from ..servers.chromium import chromium

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def settings_table() -> str:
    """The table of docs/configuration.md, from the declarations."""
    lines = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for field in fields(Settings):
        assert field.default is not MISSING
        meaning = Settings.declared()[field.name].told.replace("``", "`")
        lines.append(f"| `{field.name}` | `{field.default}` | {meaning[:1].upper()}{meaning[1:]} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert settings_table() in (ROOT / "docs/configuration.md").read_text(), settings_table()


def test_every_test_that_the_guarantees_name_is_there() -> None:
    known = set()
    for folder in (ROOT / "tests", ROOT / "src/lakelatch/testing"):
        for path in folder.rglob("*.py"):
            known |= set(re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/guarantees.md").read_text()))
    assert len(named) > 20
    assert not named - known


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_within_the_project_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_no_document_names_places_of_one_machine(document: Path) -> None:
    # /tmp/<HASH> is a path in ZooKeeper, where Hudi puts its locks.
    found = re.findall(r"/work/|/tmp/(?!<HASH>)|/root/|/home/|\bTODO\b", document.read_text())
    assert not found


def test_modules_that_the_documents_name_exist() -> None:
    for document in DOCUMENTS:
        for name in re.findall(
            r"`((?:storage|locks|conflict|occ|spark|tests|benchmarks|examples|src)/[\w/.]+)`", document.read_text()
        ):
            assert (ROOT / name).exists(), f"{document.name} names {name}"


def test_no_page_names_an_address_of_the_project() -> None:
    """There is none yet: a page names what lies in the checkout by its path."""
    for document in DOCUMENTS:
        assert not re.findall(r"https?://[\w./-]*lakelatch[\w./-]*", document.read_text()), document.name


def test_the_picture_of_two_writers_is_that_of_its_script(tmp_path: Path) -> None:
    """To renew it: ``python scripts/two_writers.py docs/two-writers.svg``."""
    drawn = tmp_path / "drawn.svg"
    subprocess.run([sys.executable, str(ROOT / "scripts/two_writers.py"), str(drawn)], check=True)
    assert (ROOT / "docs/two-writers.svg").read_text() == drawn.read_text()


@pytest.mark.parametrize("name", ["two-writers.svg", "lanes.svg"])
def test_a_picture_is_read_on_a_telephone_and_in_the_dark(name: str) -> None:
    picture = (ROOT / "docs" / name).read_text()
    width = re.search(r'viewBox="0 0 (\d+)', picture)
    assert width is not None
    assert int(width[1]) <= 460, "its letters would be too small at 390 pixels"
    assert "prefers-color-scheme" in picture


def test_the_lanes_in_the_readme_show_a_loser_and_its_winner() -> None:
    """To draw another run: ``python scripts/dashboard_lanes.py docs/lanes.svg``."""
    assert "](docs/lanes.svg)" in (ROOT / "README.md").read_text()
    shown = re.findall(r'class="(?:body|glyph)? ?(arrow|lost|landed|merged)\b', (ROOT / "docs/lanes.svg").read_text())
    assert set(shown) == {"arrow", "lost", "landed", "merged"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does: any warning ends it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_is_built_without_a_warning(site: Path) -> None:
    """Every page stands in its navigation, every link and anchor leads somewhere, every docstring fits its signature."""
    page = (site / "reference/table.html").read_text()
    for method in ("read", "transaction", "run", "change_settings"):
        assert f'id="lakelatch.Table.{method}"' in page
    anchors = set()
    for written in (site / "reference").glob("*.html"):
        anchors |= set(re.findall(r'id="(lakelatch[\w.]*)"', written.read_text()))
    public = {anchor.rpartition(".")[2] for anchor in anchors}
    assert not set(lakelatch.__all__) - public  # all of it is there, and nothing but it of the rooms
    assert {name.rpartition(".")[2] for name in anchors if name.startswith("lakelatch.occ.")} <= set(lakelatch.__all__)


def test_no_page_of_the_site_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        written = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="((?:https?:)?//[^"]+)"', written)
        loaded += re.findall(r'<link\b[^>]*\bhref="((?:https?:)?//[^"]+)"', written)
        assert not loaded, page.name


def test_a_reference_page_opens_with_a_call_and_names_no_env(site: Path) -> None:
    for name in ("table", "transaction", "spark", "locks"):
        text = (site / f"reference/{name}.html").read_text()
        above = text[text.index("<article") : text.index('class="doc doc-object')]
        assert "<pre>" in above, name  # an example stands above the first signature
        if name == "table":  # ``env``, which is for simulators, is none of the arguments of open, create and adopt
            assert not re.findall(r">env<", text[: text.index('id="lakelatch.Table"')])


def test_the_site_is_searched_from_a_folder_and_asks_no_host(site: Path) -> None:
    asked: list[str] = []
    wrong: list[str] = []
    with chromium() as browser:
        page = browser.new_page()
        page.on("request", lambda each: asked.append(each.url))
        page.on("console", lambda each: wrong.append(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "index.html").as_uri())
        assert page.locator(".md-tabs__item").all_inner_texts() == ["For users", "For maintainers"]
        page.keyboard.press("/")
        page.keyboard.type("heartbeat_timeout_s")
        page.wait_for_selector(".md-search-result__item")
    assert (site / "search/search_index.js").as_uri() in asked
    assert not [url for url in asked if not url.startswith(("file:", "data:", "about:", "blob:"))]
    assert not wrong


def test_no_shelf_is_longer_than_its_readers_bear() -> None:
    """Write a thing once, and link to it; ``python scripts/words.py`` counts each page."""
    counted = {shelf: sum(words(page.read_text()) for page in pages) for shelf, pages in shelves().items()}
    assert counted.keys() == BARS.keys()
    assert all(5_000 < counted[shelf] <= most for shelf, most in BARS.items()), counted


def test_code_and_generated_tables_are_no_words() -> None:
    text = (
        "One [link](to/a/page.md), `code`.\n```sh\nno\n```\n<!-- generated -->\n| no |\n<!-- end -->\n| two |\n::: no\n"
    )
    assert words(text) == 4
