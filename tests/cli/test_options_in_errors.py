"""Errors speak of options on the command line, and of arguments in Python."""

from __future__ import annotations

import pytest

from lakelatch.cli.outcome import in_options
from lakelatch.cli.rows.read import read
from lakelatch.cli.rows.write import upsert
from lakelatch.cli.table.create import create


@pytest.mark.parametrize(
    ("command", "said", "told"),
    [
        (create, "say `exist_ok=True`, which", "say `--exist-ok`, which"),
        (create, "hive_style=False is", "--no-hive-style is"),
        (create, "bucket_count is 0, must", "--bucket-count is 0, must"),
        (create, "ordering_field=['a', 'b']: use table_version=9", "--ordering-field a,b: use --table-version 9"),
        (create, "name=' x' has blanks", "--name ' x' has blanks"),
        (create, "the lock and the name of file:///x/exist_ok=True/t", None),
        (create, "column 'record_key' and \"lease_s\"", None),
        (upsert, 'say `missing="null"`, and', "say `--missing null`, and"),
        (upsert, 'or say `new_columns="add"`.', "or say `--new-columns add`."),
        (upsert, "without `zone=`.", "without `--zone`."),
        (upsert, "batch=('a', 3) is", "--batch a:3 is"),
        (upsert, "exist_ok=True is no option of this one", None),
        (read, "partitions=['a', 'b']: no", "--partition a,b: no"),
        (read, "as_of is 'x'\nsee https://x/y#as_of", "--as-of is 'x'\nsee https://x/y#as_of"),
    ],
)
def test_arguments_are_told_as_options_of_the_command(command, said, told):
    assert in_options(said, command) == (said if told is None else told)


def test_errors_of_commands_name_options(run, table, tmp_path):
    told = run("create", table.url, "--record-key", "id", code=2)
    assert "or say `--exist-ok`" in told.stderr
    assert "exist_ok" not in told.stderr
    assert "`--exist-ok`" in run.json("create", table.url, "--record-key", "id", code=2)["error"]["message"]
    given = tmp_path / "rows.csv"
    given.write_text("id,origin\na,JFK\n")
    assert "`--missing null`" in run("upsert", table.url, str(given), code=2).stderr
    given.write_text("id,origin,vv\na,JFK,1\n")
    assert "say `--new-columns add`" in run("insert", table.url, str(given), code=2).stderr
    assert "--as-of is 'never'" in run("read", table.url, "--as-of", "never", code=2).stderr
