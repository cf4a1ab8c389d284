"""The command line as people run it: a process, a terminal, a pipe, an interrupt, a dead writer."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest

import lakelatch
from lakelatch.cli import reordered
from lakelatch.occ.entries.entries import Begin, End
from lakelatch.testing.contention import PATIENCE_S

from ..command_line import commands
from ..thorough import crossed, some

LAKELATCH = [sys.executable, "-m", "lakelatch.cli"]
# pyarrow, numpy and Python's own are 240, Typer and Python's own 155: a library that loads more at the start is noticed.
MODULES_OF_HELP, MODULES_OF_OPEN = 200, 580
FRAMES = set("│─┌┐└┘├┤┬┴┼╭╮╰╯━┃┏┓┗┛")


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAKELATCH, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options
    )


def on_terminal(columns: int, *arguments: str) -> str:
    """What a terminal of that width gets on stdout, without its colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    child = subprocess.Popen(
        [*LAKELATCH, *arguments], stdout=slave, stderr=subprocess.DEVNULL, env=env | {"TERM": "dumb"}
    )
    os.close(slave)
    parts = []
    with contextlib.suppress(OSError):  # the terminal is closed with its last writer
        while part := os.read(master, 65536):
            parts.append(part)
    os.close(master)
    assert child.wait(PATIENCE_S) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_a_process_answers_with_exit_code_and_json(table):
    answered = run("check", table.url, "--json")
    assert answered.returncode == 0
    assert json.loads(answered.stdout)["sound"] is True
    failed = run("describe", f"{table.url}-not", "--verbose")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("lakelatch: file://")
    assert "Traceback" in run("describe", f"{table.url}-not", "--debug").stderr


def loser(table: lakelatch.Table) -> str:
    return next(entry.instant for entry in table.session.log.entries() if isinstance(entry, End))


COMMANDS = ["describe", "timeline", "files", "check", "settings", "why", "doctor"]


@pytest.mark.parametrize(
    ("command", "columns"), [*((each, 80) for each in COMMANDS), *((each, 200) for each in some(COMMANDS, 2))]
)
def test_output_fits_the_terminal(table, command: str, columns: int):
    more = [loser(table)] if command == "why" else []
    lines = on_terminal(columns, command, table.url, *more).splitlines()
    assert len(lines) >= 2
    # A path that is longer than the terminal is not broken: it could not be copied then.
    assert [line for line in lines if len(line) > columns and table.url not in line] == []
    assert not FRAMES & set("".join(lines))
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("command", ["describe", "timeline", "files", "check"])
def test_in_a_pipe_nothing_is_wrapped_or_coloured(table, command: str):
    out = run(command, table.url).stdout
    assert out
    assert "\x1b" not in out
    assert not FRAMES & set(out)
    assert not [line for line in out.splitlines() if line != line.rstrip()]
    if command == "timeline":
        with lakelatch.open(table.url) as opened:
            transactions = {entry.instant for entry in opened.session.log.entries() if isinstance(entry, Begin)}
        assert len(out.splitlines()) == 1 + len(transactions)


def test_a_reader_that_leaves_early_is_no_error(table):
    shell = f"{sys.executable} -m lakelatch.cli timeline {table.url} --json | head -n 1"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_an_interrupt_ends_it_cleanly(table):
    table.change_settings(heartbeat_timeout_s=600.0)
    txn = table.transaction("insert")
    table.session.heart.stop(txn.instant)
    master, slave = pty.openpty()
    # A shell's background job ignores SIGINT, and so would its children.
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = [*LAKELATCH, "rollback", table.url]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, text=True, preexec_fn=listen)
    os.close(slave)
    seen = b""
    while b"sign of life" not in seen:  # it waits for ten minutes from here
        seen += os.read(master, 65536)
    child.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):
        while part := os.read(master, 65536):
            seen += part
    os.close(master)
    assert child.wait(PATIENCE_S) == 130
    assert b"interrupted" in seen
    assert b"Traceback" not in seen
    assert child.stdout is not None
    assert child.stdout.read() == ""
    child.stdout.close()
    txn.abort()


WRITER = """
import sys, time, lakelatch, pyarrow as pa
table = lakelatch.open(sys.argv[1], writer="doomed")
txn = table.transaction("insert")
with txn.new_file("origin=LGA") as file:
    file.write(pa.table({"id": ["x"], "origin": ["LGA"], "v": [1]}))
print(txn.instant, flush=True)
time.sleep(600)
"""


def test_a_killed_writer_is_rolled_back(table):
    with subprocess.Popen([sys.executable, "-c", WRITER, table.url], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        instant = writer.stdout.readline().strip()
        writer.kill()
    table.close()  # its heartbeat thread would find the dead one first
    shown = json.loads(run("describe", table.url, "--json").stdout)["writers"]
    assert [(each["instant"], each["writer"], each["state"]) for each in shown] == [(instant, "doomed", "dead")]
    assert run("rollback", table.url).stdout == f"rolled back 1 transaction: {instant}\n"
    report = json.loads(run("check", table.url, "--json", "--strict").stdout)
    assert (report["sound"], report["findings"]) == (True, [])


def imported(program: str, *arguments: str, **env: str) -> set[str]:
    """The modules that a program has imported at its end."""
    last = "import atexit, sys; atexit.register(lambda: print('\\n' + ' '.join(sys.modules), file=sys.stderr))\n"
    done = subprocess.run(
        [sys.executable, "-c", last + program, *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, env={**os.environ, **env},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


# A command line, what a shell asks for completion, and the modules of commands that it may import.
LIGHT = [
    (["--help"], "", set()),
    ([], "lakelatch ", set()),
    ([], "lakelatch locks ", set()),
    (["locks", "--help"], "", set()),
    (["read", "--help"], "", {"rows"}),
    (["bench", "run", "--help"], "", {"bench"}),
    ([], "lakelatch mergers check --", {"mergers"}),
]


@pytest.mark.parametrize(("arguments", "completed", "rooms"), LIGHT)
def test_the_command_line_imports_nothing_heavy_until_it_is_used(arguments, completed, rooms):
    place = str(len(completed.split()) - (not completed.endswith(" ")))
    env = {"_LAKELATCH_COMPLETE": "complete_bash", "COMP_WORDS": completed, "COMP_CWORD": place} if completed else {}
    loaded = imported("from lakelatch.cli import main; main()", *arguments, **env)
    assert not {"pyarrow", "numpy", "fastavro", "pyspark", "obstore", "rich", "asyncio"} & loaded
    own = {each for each in loaded if each.startswith("lakelatch.cli.")}
    assert {each.split(".")[2] for each in own if each.count(".") > 2} == rooms
    # More than the program's own help takes pydantic: Typer reads options with it.
    assert len(loaded) <= MODULES_OF_HELP or arguments != ["--help"]


def test_a_first_open_imports_what_opens_a_table(table):
    loaded = imported("import lakelatch, sys; lakelatch.open(sys.argv[1]).close()", table.url)
    assert not {"asyncio", "tenacity", "importlib.metadata", "sqlglot", "fastavro", "obstore", "typer"} & loaded
    assert not {each for each in loaded if each.startswith(("lakelatch.conditions", "lakelatch.occ.history"))}
    assert len(loaded) <= MODULES_OF_OPEN


def test_help_shows_the_first_sentence_of_each_command():
    for path, each in commands():
        words = " ".join(each.imported.help.split())
        assert words.startswith(each.help), path


def test_general_options_may_stand_anywhere():
    assert reordered(["describe", "t", "--debug"]) == ["--debug", "describe", "t"]
    assert reordered(["demo", "--", "--debug"]) == ["demo", "--", "--debug"]


# Standard streams that are closed, full, or read by nobody -----------------------------------------------------------

COMMANDS = ["check {}", "check {} --json", "read {} --json", "read {} --format csv", "--help", "read {}-not --json"]


def in_shell(command: str, url: str, streams: str) -> subprocess.CompletedProcess[str]:
    line = f"{' '.join(LAKELATCH)} {command.format(url)} {streams}"
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(
    ("command", "streams"), crossed(COMMANDS, [">/dev/full", ">&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
)
def test_output_that_cannot_be_written_has_an_exit_code_of_its_own(table, command, streams):
    """Not 1, which says that the table is damaged; and not 0, because nobody sees what is missing."""
    ended = in_shell(command, table.url, streams)
    assert ended.returncode == 74
    if "2>" not in streams:
        assert "the output could not be written" in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("command", "streams"), crossed(COMMANDS[-3:], ["2>/dev/full", "2>&-", "<&-"]))
def test_what_stderr_does_not_take_changes_nothing(table, command, streams):
    assert in_shell(command, table.url, streams).returncode == (2 if "not" in command else 0)


def test_who_writes_with_stdout_closed_writes_all_the_same_and_into_no_other_file(table, tmp_path):
    """A closed stream's number goes to the next file that is opened, which what is printed must not reach."""
    rows = tmp_path / "rows.csv"
    rows.write_text("id,origin,v\nnew,JFK,7\n")
    assert in_shell(f"insert {{}} {rows}", table.url, ">&-").returncode == 74
    assert [each for each in table.read().to_pylist() if each["id"] == "new"] == [
        {"id": "new", "origin": "JFK", "v": 7}
    ]
    assert run("check", table.url, "--deep").returncode == 0


def test_a_pipe_is_followed_until_it_ends_or_ctrl_c_comes(tmp_path):
    """Each line is committed when it has come, and skipped when the pipe begins again."""
    url = str(tmp_path / "t")
    declared = {"s": {"columns": "n", "ordering": "at", "merge": {"n": "sum"}, "foreign_readers": False}}
    with lakelatch.create(url, record_key="id", schema="id string, n bigint, at bigint", streams=declared) as table:
        command = [*LAKELATCH, "streams", "follow", url, "s", "-", "--source", "pipe", "--json"]
        event = '{"id": "a", "n": 1, "at": 1}\n'
        # A shell's background job ignores SIGINT, and so would its children.
        listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=listen
        ) as child:
            for bytes_ in (len(event), 2 * len(event)):
                child.stdin.write(event)
                child.stdin.flush()
                assert json.loads(child.stdout.readline())["bytes"] == bytes_
            child.send_signal(signal.SIGINT)
            assert child.wait(PATIENCE_S) == 130
        again = subprocess.run(command, input=2 * event + event.rstrip(), capture_output=True, text=True, check=True)
        assert [json.loads(each)["rows"] for each in again.stdout.splitlines()] == [1]
        assert table.read().to_pylist()[0]["n"] == 3


def test_a_follower_that_nobody_reads_says_nothing_wrong_of_its_input(tmp_path):
    url = str(tmp_path / "t")
    with lakelatch.create(
        url, record_key="id", schema="id string, n bigint, at bigint", streams={"s": {"columns": "n", "ordering": "at"}}
    ) as table:
        command = [*LAKELATCH, "streams", "follow", url, "s", "-", "--source", "pipe"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as child:
            child.stdout.close()
            child.stdin.write('{"id": "a", "n": 1, "at": 1}\n')
            child.stdin.flush()
            assert child.wait(PATIENCE_S) == 141
            assert "cannot be read" not in child.stderr.read()
        assert table.read().count() == 1
