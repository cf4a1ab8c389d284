"""With --json every command answers in JSON, also when it could not do what it was asked."""

from __future__ import annotations

import json

import pytest

from ..command_line import commands

# A command that fails for each, by its words; what they need is in the table of `tests/cli/conftest.py`.
FAILURES = {
    ("create",): ["{table}", "--record-key", "id"],
    ("adopt",): ["{table}"],
    ("describe",): ["{none}"],
    ("timeline",): ["{none}"],
    ("doctor",): ["{none}"],
    ("why",): ["{table}", "20200101000000000"],
    ("watch",): ["{table}", "--after", "yesterday"],
    ("settings",): ["{table}", "isolation=perfect"],
    ("read",): ["{table}", "--where", "nope = 1"],
    ("sql",): ["select nope from t", "--table", "t={table}"],
    ("worker-zip",): ["{none}.tar"],
    ("upsert",): ["{table}", "{none}.csv"],
    ("insert",): ["{table}", "{none}.csv"],
    ("delete",): ["{table}", "{none}.csv"],
    ("diff",): ["{table}", "yesterday", "2026-01-01"],
    ("files",): ["{table}", "--as-of", "yesterday"],
    ("check",): ["{none}"],
    ("rollback",): ["{table}", "20200101000000000"],
    ("restore",): ["{table}", "20200101000000000", "--yes"],
    ("rescue",): ["{table}", "20200101000000000", "--yes"],
    ("locks", "show"): ["{none}"],
    ("locks", "watch"): ["{none}"],
    ("locks", "set"): ["{table}", "telepathy://x"],
    ("locks", "check"): ["telepathy://x"],
    ("locks", "revoke"): ["telepathy://x", "k"],
    ("locks", "wait"): ["telepathy://x", "k"],
    ("locks", "break"): ["{table}", "--token", "77", "--reason", "test"],
    ("services", "list"): ["{none}"],
    ("services", "clean"): ["{table}", "--retain-commits", "-1"],
    ("services", "cluster"): ["{table}", "--partition", "nope"],
    ("services", "buckets"): ["{table}", "0"],
    ("services", "archive"): ["{table}", "--keep-min", "0"],
    ("services", "compact"): ["{table}", "--partition", "nope"],
    ("services", "compact-logs"): ["{table}", "--partition", "nope"],
    ("services", "run"): ["{table}", "--retain-commits", "-1"],
    ("services", "execute"): ["{table}", "20200101000000000"],
    ("services", "cancel"): ["{table}", "20200101000000000"],
    ("savepoint", "create"): ["{table}", "--at", "20200101000000000"],
    ("savepoint", "list"): ["{none}"],
    ("savepoint", "delete"): ["{table}", "20200101000000000"],
    ("sync", "glue"): ["{none}", "analytics"],
    ("server",): ["--table", "{none}", "--port", "0"],
    ("streams", "list"): ["{none}"],
    ("streams", "adopt"): ["{table}", "--stream", "clicks:nope:v"],
    ("streams", "add"): ["{table}", "clicks", "--columns", "v", "--ordering", "nope"],
    ("streams", "explain"): ["{table}", "k"],
    ("streams", "alter"): ["{table}", "clicks", "--null", "skip"],
    ("streams", "drop"): ["{table}", "nope"],
    ("streams", "undrop"): ["{table}", "nope"],
    ("streams", "retract"): ["{table}", "clicks", "{none}"],
    ("streams", "overwrite"): ["{table}", "clicks", "{none}"],
    ("streams", "follow"): ["{table}", "clicks", "{none}"],
    ("mergers", "check"): ["telepathy"],
    ("bench", "run"): ["telepathy"],
    ("bench", "compare"): ["{none}", "{none}"],
    ("bench", "report"): ["{none}"],
    ("bench", "export"): ["{none}"],
}
OF_A_KEY = {("locks", "revoke"), ("locks", "wait")}  # they end with the codes of sysexits.h


def test_every_command_is_tried():
    # Two run what somebody else wrote, and print nothing of their own; two list what is built in.
    rest = {("demo",), ("locks", "hold"), ("bench", "list"), ("mergers", "list")}
    assert set(FAILURES) | rest == {path for path, _ in commands()}


@pytest.mark.parametrize("command", FAILURES, ids=" ".join)
def test_an_error_is_a_sentence_and_with_json_also_json(run, table, tmp_path, command):
    arguments = [each.format(table=table.url, none=tmp_path / "none") for each in FAILURES[command]]
    code = 64 if command in OF_A_KEY else 2
    plain = run(*command, *arguments, code=code)
    assert (plain.stdout, plain.stderr[:11]) == ("", "lakelatch: ")
    told = run(*command, *arguments, "--json", code=code)
    assert told.stderr == plain.stderr
    error = json.loads(told.stdout)["error"]
    assert set(error) == {"type", "message", "landed", "retryable", "exit_code", "docs", "facts"}
    assert error["docs"].endswith(f"docs/errors.md#{error['type'].lower()}")
    assert plain.stderr.splitlines()[-1] == f"see {error['docs']}"
    assert (error["landed"], error["exit_code"]) == (False, code)
    assert error["message"].replace("\n", "\n  ") in plain.stderr
    assert error["type"].endswith("Error")


@pytest.mark.parametrize(
    "arguments", [["describe", "--json"], ["timeline", "t", "--limit", "x", "--json"], ["nope", "--json"]]
)
def test_arguments_that_cannot_be_understood_are_json_too(run, arguments):
    told = run(*arguments, code=2)
    assert json.loads(told.stdout)["error"]["type"] == "Usage"
    assert json.loads(told.stdout)["error"]["message"]
    assert told.stderr.startswith("Usage:")


def test_what_was_not_confirmed_is_json_too(run, table):
    first = table.timeline().commits[0].requested
    told = run("restore", table.url, first, "--json", code=2, given="n\n")
    assert json.loads(told.stdout.splitlines()[-1])["error"]["type"] == "Aborted"  # the runner echoes what it types


def test_success_and_help_are_as_before(run, table):
    assert run.json("describe", table.url)["url"] == table.url
    assert (
        run("describe", "--help", "--json").stdout.startswith("\nUsage") or "Usage" in run("describe", "--help").stdout
    )
