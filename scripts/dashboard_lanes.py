"""Draw the lanes of the server's dashboard, for README, from a run of five writers: `python scripts/dashboard_lanes.py FILE.svg`.

It takes a minute, which is the least that the page shows. Needs the extra `[server]`, playwright and a
Chromium. The picture is the one that the page draws on a narrow screen.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import sync_playwright

import lakelatch
from lakelatch.errors import ConflictError

PORT, TOKEN = 8957, "0123456789abcdef" * 4
PAGE = Path(__file__).parents[1] / "src/lakelatch/server/page"
# Which rows each writer changes: those of one number meet in a row.
WRITERS = {"arrivals": 1, "departures": 2, "gates": 3, "corrections": 1, "privacy": 4}
SHOWN = 400  # pixels; wide enough for the page's narrow form


def work(url: str, writer: str, row: int) -> None:
    """Change one row again and again, with a pause for thought in each transaction."""
    thought = random.Random(writer)
    with lakelatch.open(url, writer=writer) as table:

        def change(txn: lakelatch.Transaction) -> None:
            time.sleep(thought.uniform(1.5, 5))
            if writer == "privacy":
                txn.delete_where("id > 900")
            txn.upsert([{"id": row, "delay": thought.randrange(90)}])

        for _ in range(8):
            try:
                table.run(change, attempts=4)
            except ConflictError:
                continue
            time.sleep(thought.uniform(0, 2))


def style() -> str:
    """Return the rules of the page that its picture needs, with both sets of colours."""
    rules = (PAGE / "dashboard.css").read_text()
    light = re.search(r":root \{.*?\n\}", rules, re.DOTALL)
    dark = re.search(r"@media \(prefers-color-scheme: dark\) \{.*?\n\} \}", rules, re.DOTALL)
    drawn = rules[rules.index("svg text {") : rules.index(".legend .arrow")]
    assert light is not None
    assert dark is not None
    return (
        light[0]
        + dark[0].replace(":root:not([data-theme=light])", ":root")
        + drawn
        + "text{font-family:system-ui,sans-serif}"
    )


def drawn(url: str, folder: Path) -> str:
    """Return the picture that the page of a server shows of a table."""
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    command = [
        str(Path(sys.executable).with_name("lakelatch")),
        "server",
        "--table",
        f"flights={url}",
        "--port",
        str(PORT),
    ]
    with subprocess.Popen([*command, "--token-file", str(folder / "token")]) as server, sync_playwright() as play:
        try:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": SHOWN + 60, "height": 900})
            for _ in range(100):
                try:
                    page.goto(f"http://127.0.0.1:{PORT}/?token={TOKEN}")
                    break
                except Exception:  # noqa: BLE001 - the server is not there yet
                    time.sleep(0.2)
            page.wait_for_selector("#picture .landed.body", state="attached")
            page.wait_for_selector("#newest table")
            return str(page.evaluate("new XMLSerializer().serializeToString(document.getElementById('picture'))"))
        finally:
            server.terminate()


def picture() -> str:
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        url = str(folder / "flights")
        with lakelatch.create(url, record_key="id") as table:
            table.upsert([{"id": number, "delay": 0} for number in range(1000)])
        with ThreadPoolExecutor(len(WRITERS)) as pool:
            for done in [pool.submit(work, url, writer, row) for writer, row in WRITERS.items()]:
                done.result()
        found = drawn(url, folder)
    found = re.sub(r' (?:tabindex|aria-label|data-of|id)="[^"]*"', "", found)
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', found)
    assert box is not None
    ground = f'<rect width="{box[1]}" height="{box[2]}" rx="8" style="fill:var(--card)"/>'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {box[1]} {box[2]}" width="640" role="img">'
    title = "<title>Five writers of one table, one after the other and at once: landed, merged again, or lost</title>"
    return f"{opening}{title}<style>{style()}</style>{ground}{found[found.index('>') + 1 :]}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
