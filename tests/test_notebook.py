"""What a notebook shows of the library's objects: all that matters, and nothing that the page would obey."""

from __future__ import annotations

import gc
import pickle
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.notebook import view

EVIL = "<script>alert('&\"')</script>"


@pytest.fixture
def table(tmp_path: Path):
    with lakelatch.create(tmp_path / f"{EVIL.replace('/', '')} t", record_key="id", writer=EVIL) as made:
        yield made


def harmless(html: str) -> str:
    assert "<script" not in html
    assert "&lt;script&gt;" in html or "&#x27;" in html  # a URL spells all but the quote otherwise
    return html


def test_a_view_escapes_everything_and_cuts_long_cells():
    html = view(
        EVIL,
        [(EVIL, EVIL), ("none", None), ("long", "x" * 501)],
        headers=[EVIL],
        rows=[[EVIL, "\x00\u202e"]],
        below=EVIL,
    )
    assert html.count("&lt;script&gt;") == 6
    assert "<script" not in html
    assert "none" not in html
    assert "x" * 500 + "..." in html
    assert "\\x00\\u202e" in html
    assert view("t") == "<div><strong>t</strong></div>"


def test_tables_scans_timelines_and_errors_have_one(table):
    table.upsert([{"id": "a", "n": 1}], note={"job": EVIL})
    assert "record key" in harmless(table._repr_html_())
    assert "<td style='text-align:left'>int64</td>" in table._repr_html_()
    scan = table.read(where="n > 0", limit=5)
    assert "the first 5" in harmless(scan._repr_html_())
    assert "commit" in harmless(table.timeline()._repr_html_())
    account = table.why(table.commits()[-1][0].requested)
    assert "landed" in harmless(account._repr_html_())
    with pytest.raises(lakelatch.InputError) as told:
        table.read(columns=[EVIL])
    html = harmless(told.value._repr_html_())
    assert "a retry is safe" in html
    table.close()
    assert "was closed" in table._repr_html_(), "no traceback in place of the view"


def test_a_conflict_says_to_whom_it_was_lost(table):
    table.upsert([{"id": "a", "n": 1}])
    with lakelatch.open(table.url, writer=EVIL) as other:
        txn = table.transaction(isolation="serializable")
        txn.upsert([{"id": "b", "n": txn.read().count()}])
        won = other.upsert([{"id": "a", "n": 2}])
        with pytest.raises(lakelatch.ConflictError) as told:
            txn.commit()
    html = harmless(told.value._repr_html_())
    assert won.instant in html
    assert won.instant in harmless(table.why(txn.instant)._repr_html_())


def test_the_newest_twenty_instants_are_shown(table):
    for n in range(12):
        table.upsert([{"id": "a", "n": n}])
    html = table.timeline()._repr_html_()
    assert "of 13" not in html
    for n in range(12):
        table.upsert([{"id": "a", "n": n}])
    html = table.timeline()._repr_html_()
    assert "the newest 20 of 25" in html
    assert html.count("<tr>") == 21


def test_a_write_says_what_it_did(table):
    done = table.upsert([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    assert f"<upsert {done.instant}: 2 inserted, 0 updated, 0 deleted; 1 file, " in repr(done)
    assert repr(done).endswith(f"; 1 attempt, {done.took_s:.3g} s>")
    assert done.took_s > 0
    assert repr(table.delete([{"id": "nope"}])) == "<delete: nothing to change>"
    table.upsert([{"id": "a", "n": 2}], batch=("q", 1))
    assert "its batch landed before" in repr(table.upsert([{"id": "a", "n": 2}], batch=("q", 1)))
    assert table.run(lambda txn: txn.upsert([{"id": "c", "n": 1}])).took_s > 0


def test_a_scan_has_a_head_and_a_limit(table):
    table.upsert([{"id": f"{n:03}", "n": n} for n in range(300)])
    whole = table.read().to_pylist()
    assert table.read().head().num_rows == 10
    for limit in (0, 1, 10, 299, 300, 301, 2**70):
        scan = table.read(limit=limit)
        assert scan.to_pylist() == scan.to_pandas().to_dict("records") == whole[:limit]
        assert scan.count() == pa.table(scan).num_rows == min(limit, 300)
        assert pickle.loads(pickle.dumps(scan)).to_pylist() == whole[:limit]
        assert table.read(where="n >= 100", limit=limit).count() == min(limit, 200)
        assert sum(each.num_rows for each in scan.to_batches()) == min(limit, 300)
        assert scan.head(5).to_pylist() == whole[: min(limit, 5)]
    assert table.changes(after=None).head(3).num_rows == 3
    with pytest.raises(lakelatch.InputError, match="head: n=None"):
        table.read().head(None)
    for wrong in (-1, 1.5, "5", True, float("nan")):
        with pytest.raises(lakelatch.InputError, match="limit="):
            table.read(limit=wrong)
    with pytest.raises(lakelatch.InputError, match="has no parts"):
        table.read(limit=1).parts(1 << 20)


def test_a_head_reads_no_further_than_it_must(tmp_path):
    with lakelatch.create(tmp_path / "many", record_key="id", partition_by="p") as many:
        many.upsert([{"id": f"{n:03}", "p": f"{n:03}"} for n in range(100)])
        told: list[int] = []
        many.read(limit=3, progress=lambda each: told.append(each.done)).to_arrow()
        assert told[-1] <= 4


def test_a_merge_that_is_dropped_without_run_warns(table):
    table.upsert([{"id": "a", "n": 1}])
    forgotten = [table.merge([{"id": "a", "n": 2}]).when_matched(update="all")]
    with pytest.warns(RuntimeWarning, match=r"was dropped without `.run\(\)`; nothing was written"):
        forgotten.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.merge([{"id": "a", "n": 2}]).when_matched(update="all").run()
        with pytest.raises(lakelatch.InputError):
            table.merge([{"id": "a", "n": 2}]).when_matched()
        with pytest.raises(lakelatch.InputError):
            table.merge([{"id": "a", "n": 2}]).run()
        gc.collect()


def test_the_package_lists_what_is_public():
    packages = ("glue", "locks", "server", "spark", "testing")
    assert dir(lakelatch) == sorted({*lakelatch.__all__, *packages, "__version__"})
    assert all(hasattr(lakelatch, name) for name in dir(lakelatch))
    assert lakelatch.spark.open, "without an import of its own"
    assert lakelatch.testing.LockProviderContract


def test_a_path_names_a_table(tmp_path):
    with lakelatch.create(tmp_path / "ü 🌙", record_key="id") as made:
        assert made.url.startswith("file://")
    with lakelatch.open(tmp_path / "ü 🌙") as opened:
        assert opened.url == made.url
    with pytest.raises(lakelatch.ConfigError, match="has a commit log already"):
        lakelatch.adopt(tmp_path / "ü 🌙")
