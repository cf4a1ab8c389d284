"""The dashboard in a real browser: what people see of a table, and how soon."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.hudi.timeline import from_epoch_ms
from lakelatch.server import Limits, Watched
from lakelatch.server.ledger import Span
from lakelatch.server.page import page as the_page
from lakelatch.testing.contention import PATIENCE_S

from ..servers.chromium import chromium
from .conftest import TOKEN, lose, rows, serving

sync_api = pytest.importorskip("playwright.sync_api")
EVIL = '<img src=x onerror="window.harmed = 1"><script>window.harmed = 1</script>\u202e'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens the dashboard; afterwards nothing was asked of another host, and nothing has failed in the browser."""
    contexts, wrong = [], []

    def open_page(url: str, *, width: int = 1280, scheme: str = "light", path: str = f"/?token={TOKEN}") -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(90_000)
        page.on("console", lambda each: wrong.append(each.text) if each.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda each: None if each.url.startswith((url, "data:")) else wrong.append(each.url))
        page.goto(url + path)
        page.wait_for_selector("#newest p, #newest table")
        return page

    yield open_page
    for each in contexts:
        each.close()
    assert not wrong


@pytest.fixture
def url(table: lakelatch.Table) -> Iterator[str]:
    with serving({"flights": table.url}, limits=Limits(requests_s=10_000)) as server:
        yield server.url


def comes_true(page: Any, expression: str) -> None:
    """Waits for it; playwright's own waiting would evaluate text in the page, which its policy forbids."""
    until = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < until, expression
        page.wait_for_timeout(50)


def cpu_s() -> float:
    """The CPU seconds of this process and of all that have come from it, as the browser's."""
    parents, spent = dict[int, int](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            facts = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid], spent[pid] = int(facts[1]), int(facts[11]) + int(facts[12])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(spent[pid] for pid in ours) / os.sysconf("SC_CLK_TCK")


def test_the_page_is_small_and_wants_nothing_from_elsewhere():
    body = the_page().body
    assert len(body) <= 120_000
    for other in re.findall(rb"https?://[^\"' )]+", body):
        assert other == b"http://www.w3.org/2000/svg"
    assert b"innerHTML" not in body
    assert b"eval(" not in body


def test_who_lost_to_whom_is_drawn_and_a_click_tells_why(table: lakelatch.Table, url: str, visit):
    with lakelatch.open(table.url, writer="rival") as rival:
        loser, winner = lose(table, by=rival)
    page = visit(url)
    assert TOKEN not in page.url
    page.wait_for_selector(f"#s{loser} .lost.body")
    page.wait_for_selector(f"#s{winner} .landed.body")
    assert page.locator("#picture .arrow").get_attribute("data-of") == f"{loser} {winner}"
    page.locator(f"#s{loser} .glyph").click()
    told = page.locator("#why-body")
    told.get_by_text("both changed the same file group").wait_for()
    assert f"{winner} upsert by rival, landed" in told.inner_text()
    told.get_by_role("button", name=winner).click()
    comes_true(page, f"document.getElementById('why-title').textContent === '{winner}'")
    page.keyboard.press("Escape")
    assert not page.locator("#why").is_visible()


def test_a_coordinator_is_shown_with_its_batches_and_rates(table: lakelatch.Table, visit):
    with serving({"flights": table.url}, limits=Limits(requests_s=10_000), coordinate=True) as server:
        page = visit(server.url)
        with lakelatch.open(
            table.url, writer="B", coordinator=lakelatch.CoordinatorServer(server.url, token=TOKEN)
        ) as writer:
            for value in (1, 2):
                writer.upsert(rows(value))
        comes_true(page, "/begun[1-9]/.test(document.getElementById('coordinator').textContent)")
        page.locator("#coordinator").get_by_text("0 questions waiting, 0 commits not on the timeline yet").wait_for()
        assert "In one entry" in page.locator("#coordinator").inner_text()
        page.close()


def test_without_a_coordinator_there_is_no_card_of_one(url: str, visit):
    assert not visit(url).locator("#coordinator-card").is_visible()


def test_everything_can_be_reached_by_keyboard(table: lakelatch.Table, url: str, visit):
    loser, _ = lose(table)
    page = visit(url)
    page.wait_for_selector(f"#s{loser}")
    page.locator("#picture").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    for _ in range(10):
        if page.evaluate("document.querySelector('.span.chosen').id") == f"s{loser}":
            break
        page.keyboard.press("ArrowLeft")
    assert loser in page.locator("#picture").get_attribute("aria-label")
    page.keyboard.press("Enter")
    page.locator("#why-body").get_by_text("both changed the same file group").wait_for()


def test_a_change_is_shown_while_one_looks(table: lakelatch.Table, url: str, visit):
    page = visit(url)
    with table.transaction("upsert") as txn:
        for group in txn.snapshot.file_slices():
            txn.rewrite(group).write(rows(4))
        page.wait_for_selector(f"#s{txn.instant} .open.body")
        page.locator("#open").get_by_role("button", name=txn.instant).wait_for()
    page.wait_for_selector(f"#s{txn.instant} .landed.body")
    comes_true(page, "document.getElementById('open').textContent.includes('No transaction is open')")


def test_a_transaction_over_several_tables_names_them_in_its_lane(table: lakelatch.Table, url: str, visit, tmp_path):
    partner = lakelatch.create(str(tmp_path / "stock"), record_key="id", schema="id string, n bigint")
    with lakelatch.transaction(table, partner) as txn:
        txn[table].upsert([{"id": "k0", "origin": "JFK", "v": 1}])
        txn[partner].upsert([{"id": "k0", "n": 1}])
    here, there = (each.timeline().commits[-1].requested for each in (table, partner))
    page = visit(url)
    page.wait_for_selector(f"#s{here} .partners")
    page.locator("#newest").get_by_text(f"one transaction: {here} of {table.url}, {there} of {partner.url}").wait_for()
    page.locator("#newest").get_by_role("button", name=here).first.click()
    page.locator("#why-body").get_by_text(f"part of one transaction with {there} of {partner.url}").wait_for()
    partner.close()


def test_merged_again_reserved_planned_and_held_are_all_shown(table: lakelatch.Table, url: str, visit):
    import pyarrow as pa

    def row(key: str, value: int) -> pa.Table:
        return pa.table({"id": [key], "origin": ["JFK"], "v": [value]})

    later = table.transaction("upsert")
    later.upsert(row("k0", 1))
    with lakelatch.open(table.url, writer="first") as first:
        first.upsert(row("k1", 1))
    later.commit()
    table.insert(rows(1))
    planned = table.plan_clustering()
    reserver = table.transaction("upsert", reserve="table")
    with table.session.lease("measuring"):
        page = visit(url)
        page.locator("#lock").get_by_text("A: measuring").wait_for()
        page.wait_for_selector("#picture .hold")
    page.locator("#open").get_by_text("reserved the table").wait_for()
    page.locator("#services").get_by_role("button", name=planned).wait_for()
    page.locator("#sizes").get_by_text("archive: files").wait_for()
    assert page.locator("#picture .merged.body").count() == 1
    reserver.abort("enough")


def test_what_a_table_says_is_text_and_never_runs(table: lakelatch.Table, url: str, visit):
    with lakelatch.open(table.url, writer=EVIL) as evil:
        loser, _ = lose(table, by=evil)
    page = visit(url)
    shown = EVIL.replace("\u202e", "\\u202e")
    assert shown in page.locator("#newest").inner_text()
    assert page.evaluate("[...document.querySelectorAll('#picture title')].map(t => t.textContent)").count(shown) == 1
    page.locator("#newest").get_by_role("button", name=loser).first.click()
    page.locator("#why-body dl").wait_for()
    assert page.evaluate("window.harmed === undefined && !document.querySelector('main img, dialog img')")


@pytest.mark.parametrize("width", [390, 1280, 1920, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_and_can_be_read(table: lakelatch.Table, url: str, visit, width: int, scheme: str):
    with lakelatch.open(table.url, writer="a-writer-with-a-name-that-is-far-too-long-for-a-phone-" * 3) as other:
        lose(table, by=other)
    page = visit(url, width=width, scheme=scheme)
    page.wait_for_selector("#picture")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT_OFF) == []
    contrasts = page.evaluate(CONTRAST)
    assert min(contrasts.values()) >= 4.5, contrasts
    page.locator("#theme").click()
    assert min(page.evaluate(CONTRAST).values()) >= 4.5


# What is wider than its place: parts of the page, and texts of the picture.
CUT_OFF = """() => [
  ...[...document.querySelectorAll("main *")].filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth + 1),
  ...[...document.querySelectorAll("main svg text")].filter((e) => {
    const text = e.getBoundingClientRect(), place = e.ownerSVGElement.getBoundingClientRect();
    return text.left < place.left - 1 || text.right > place.right + 1;
  }),
].map((e) => `${e.tagName} ${e.id} ${e.textContent.slice(0, 60)}`)"""
# The contrast (WCAG 2) of the text of a few elements with what lies behind it.
CONTRAST = """() => {
  const light = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = parts.map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (e) => {
    const c = getComputedStyle(e).backgroundColor;
    return c.startsWith("rgba(0, 0, 0, 0") && e.parentElement ? behind(e.parentElement) : c;
  };
  const found = {};
  const some = ["h1", "h2", "th", "td", "button.link", ".tile small", ".quiet", "summary", "button[aria-pressed=true]"];
  for (const what of some) {
    const e = document.querySelector(what), a = light(getComputedStyle(e).color), b = light(behind(e));
    found[what] = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  }
  return found;
}"""


def test_a_killed_writer_is_drawn_dead_and_counted_so_everywhere(table: lakelatch.Table, url: str, visit):
    table.close()  # or it might roll the dead one back at once
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, table.url], capture_output=True, text=True, timeout=120, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    instant = killed.stdout.strip()
    page = visit(url)
    page.wait_for_selector(f"#s{instant} .dead.body")
    assert "1 dead or silent" in page.locator("#tiles").inner_text()
    for place in ("#open", "#newest"):
        assert re.search(rf"{instant}.*dead", page.locator(f"{place} tr", has_text=instant).inner_text(), re.DOTALL)


KILLED = """
import os, signal, sys
import lakelatch
txn = lakelatch.open(sys.argv[1], writer="killed").transaction("upsert")
print(txn.instant, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_outcomes_differ_in_shape_and_not_in_colour_alone(table: lakelatch.Table, url: str, visit):
    page = visit(url)
    shapes = page.evaluate("[...document.querySelectorAll('#legend .glyph')].map(g => g.tagName + g.getAttribute('d'))")
    assert len(shapes) == len(set(shapes)) == 7


def test_every_picture_has_its_table_with_the_same_numbers(table: lakelatch.Table, url: str, visit):
    lose(table)
    page = visit(url)
    drawn = page.locator("#picture .span").count()
    for summary in page.locator("summary").all():
        summary.click()
    for place in ("#lanes-table", "#overview-table"):
        page.wait_for_selector(f"{place} table")
        numbers = [int(each) for each in page.locator(f"{place} td.n").all_inner_texts()]
        assert sum(numbers) == drawn


def test_one_can_zoom_pan_filter_and_come_back(table: lakelatch.Table, url: str, visit):
    with lakelatch.open(table.url, writer="rival") as rival:
        lose(table, by=rival)
    page = visit(url)
    names = "[...document.querySelectorAll('#picture .name title')].map(t => t.textContent)"
    assert set(page.evaluate(names)) == {"A", "rival"}
    page.fill("#filter", "RIV")
    comes_true(page, f"{names}.join() === 'rival'")
    page.fill("#filter", "nobody")
    page.get_by_text("No such writer was at work").wait_for()
    page.fill("#filter", "")
    page.wait_for_selector("#picture")
    page.locator("#out").click()
    comes_true(page, "!document.querySelector('#ranges [aria-pressed=true]')")
    page.locator("#forth").click()
    page.get_by_role("button", name="All").click()
    comes_true(page, "document.querySelector('#ranges [aria-pressed=true]')?.textContent === 'All'")
    assert page.locator("#picture .span").count() == 4


def test_without_the_cookie_the_page_says_what_to_do(table: lakelatch.Table, url: str, browser: Any):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/?token={TOKEN}")
    page.wait_for_selector("#newest table")
    context.clear_cookies()
    page.get_by_role("button", name="1 h", exact=True).click()
    page.get_by_text("open the server's link with its token again").wait_for()
    context.close()


def test_100_000_instants_of_1_000_writers_are_seen_at_once_and_stay_few_shapes(table: lakelatch.Table, visit):
    random_, now = random.Random(5), int(time.time() * 1000)
    watched = Watched("flights", table)
    watched.look()
    with watched.ledger() as ledger:
        for number in range(100_000):
            begin = now - (100_000 - number) * 600
            outcome = random_.choice(("landed", "landed", "merged", "lost"))
            writer = f"writer-{random_.randrange(1000):04d}"
            span = Span(from_epoch_ms(begin), "UPSERT", writer, begin, begin + random_.randrange(5000), outcome)
            ledger.spans[span.instant] = span
            ledger.lanes[writer].append(span)
    with serving({}, limits=Limits(requests_s=10_000), watched={"flights": watched}) as server:
        before = cpu_s()
        page = visit(server.url)
        took_ms = page.evaluate("performance.getEntriesByName('first-picture')[0].startTime")
        spent_s = cpu_s() - before
        print(f"first picture of 100,000 instants after {took_ms:.0f} ms, {spent_s:.1f} s of CPU")
        assert spent_s < 10  # on a machine that others use it takes as long as these let it
        page.get_by_role("button", name="All").click()
        comes_true(page, "document.getElementById('hint').textContent.startsWith('100,00')")
        assert page.locator("#picture *").count() < 12_000
        assert "1 to 40 of 1,00" in page.locator("#page").inner_text()
        page.locator("#more").click()
        comes_true(page, "document.getElementById('page').textContent.startsWith('41')")
        page.context.close()  # before its server
