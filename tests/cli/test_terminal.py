"""Names that others have chosen reach a terminal as text: no control character, no line of their own, no markup."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.cli import output
from lakelatch.cli.outcome import set_up
from lakelatch.errors import CorruptTableError
from lakelatch.occ.log.epochs import LOG, epochs, slot_path
from lakelatch.plain_text import visible, visible_json
from lakelatch.testing import FakeEnvironment

from ..command_line import Runner

EVIL = "\x1b[2J\x9b1m\u202egnp.exe\rlakelatch: sound\nlakelatch: sound\x07"
UNSEEN = set(EVIL) & {chr(n) for n in (*range(32), *range(0x7F, 0xA0), 0x202E)}


def clean(text: str) -> None:
    assert not (UNSEEN - {"\n"}) & set(text), repr(text)
    assert "\nlakelatch: sound" not in text


@pytest.fixture
def named(tmp_path: Path) -> str:
    """A table whose writer, partition, stray file and open transaction are named by somebody malicious."""
    url = str(tmp_path / "t")
    with lakelatch.create(url, record_key="id", partition_by="p", writer=EVIL, heartbeat_interval_s=0.1) as table:
        with table.transaction("insert") as txn:
            txn.upsert(pa.table({"id": ["a"], "p": ["x"]}))
        (tmp_path / "t/p=x" / EVIL.replace("/", "")).write_bytes(b"x")
        (tmp_path / "t" / f"{EVIL}_1").mkdir()
        (tmp_path / "t" / f"{EVIL}_1" / ".hoodie_partition_metadata").touch()
        lost = table.transaction("insert")
        lost.abort(EVIL)
        table.transaction("upsert")
    return url


@pytest.mark.parametrize(
    "command",
    [["check"], ["check", "--deep"], ["timeline"], ["describe"], ["files"], ["locks", "show"], ["services", "list"]],
)
def test_no_command_prints_what_a_name_would_have_it_print(run, named, command):

    from lakelatch.cli.app import app

    for more in ([], ["--json"]):
        result = Runner().invoke(app, [*command, named, *more])
        assert result.exit_code in (0, 1), result.output
        clean(result.output)
        if more:
            json.loads(result.stdout)


def test_json_keeps_the_very_names(named):

    from lakelatch.cli.app import app

    told = json.loads(Runner().invoke(app, ["describe", named, "--json"]).stdout)
    assert [each["writer"] for each in told["writers"]] == [EVIL]


def test_an_error_is_printed_as_text():
    clean(str(CorruptTableError(f"file {EVIL.replace(chr(10), '')} is torn")))


def test_a_log_message_is_one_line_of_text(capsys):
    set_up(debug=False, verbose=False)
    logging.getLogger("lakelatch.test").warning("the name is %s", EVIL)
    told = capsys.readouterr().err
    clean(told)
    assert told.count("\n") == 1


def test_a_fault_is_logged_with_its_traceback_and_a_warning_without(capsys):
    set_up(debug=False, verbose=False)
    log = logging.getLogger("lakelatch.test")
    try:
        raise ZeroDivisionError(EVIL)
    except ZeroDivisionError:
        log.warning("it is tried again", exc_info=True)
        assert capsys.readouterr().err == "warning: it is tried again\n"
        log.exception("GET /x failed")
    told = capsys.readouterr().err
    clean(told)
    assert told.startswith("error: GET /x failed\n  Traceback")
    assert "test_terminal.py" in told
    assert "ZeroDivisionError: " in told


def test_markup_in_a_name_is_text(capsys):
    output.print_table(("name",), [("[bold]x[/bold][link=http://a]y[/link]",)])
    output.print_pairs([("a", "[red]\x1b[0mx")])
    assert capsys.readouterr().out == "name\n[bold]x[/bold][link=http://a]y[/link]\na  [red]\\x1b[0mx\n"


def test_visible_text_is_the_same_when_there_is_nothing_to_hide():
    assert visible("orders/größe=\U0001f600 [x]") == "orders/größe=\U0001f600 [x]"
    assert visible("a\nb\t\ud800") == "a\\nb\\t\\ud800"
    assert json.loads(visible_json(json.dumps({"a": EVIL}, ensure_ascii=False))) == {"a": EVIL}


def test_a_stray_file_among_the_entries_of_the_log_disturbs_nobody(tmp_path, caplog):
    """At each beat of the heart somebody looks into the newest epoch."""
    env = FakeEnvironment(seed=1)
    with lakelatch.create(str(tmp_path), record_key="id", env=env, writer="A") as table:
        (epoch,) = epochs(table.store)
        folder = (tmp_path / slot_path(epoch, 0)).parent
        for name in ("!first", ".DS_Store", "README", "0" * 19, "\u00b2" * 20):
            (folder / name).write_bytes(b"stray")
        (tmp_path / LOG / "notes").mkdir()
        (tmp_path / LOG / "notes/x").touch()
        with lakelatch.open(str(tmp_path), env=env.peer()) as other, caplog.at_level(logging.DEBUG):
            txn = other.transaction("insert")
            env.advance(60)
            txn.new_file("").write(pa.table({"id": ["a"]}))
            txn.commit()
        assert not [each for each in caplog.records if each.exc_info or each.levelno >= logging.WARNING], caplog.text
        assert table.read().count() == 1
