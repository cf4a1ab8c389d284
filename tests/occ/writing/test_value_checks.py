"""The setting ``check``: a condition that no row may break, whoever writes it and however its values came about."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import lakelatch
from lakelatch import sql
from lakelatch.cli.app import app
from lakelatch.errors import ConfigError, ConflictError, ConstraintError, InputError
from lakelatch.occ.check.check import check

from ...command_line import Runner

SCHEMA = pa.schema([
    ("id", pa.string()), ("part", pa.string()), ("amount", pa.float64()), ("low", pa.int64()), ("high", pa.int64()),
    ("s", pa.struct([("n", pa.int64())])),
])  # fmt: skip
KINDS = {
    "simple": {},
    "buckets": {"bucket_count": 2},
    "merge_on_read": {"type": "merge_on_read", "bucket_count": 2},
    "partitioned": {"partition_by": "part"},
}


def row(id_: str, amount: float | None = 1.0, *, low: int | None = 0, high: int | None = 1, n: int = 0) -> dict:
    return {"id": id_, "part": "p", "amount": amount, "low": low, "high": high, "s": {"n": n}}


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    with lakelatch.create(
        tmp_path / "t", record_key="id", schema=SCHEMA, check=["amount >= 0", "low < high"], **KINDS[request.param]
    ) as made:
        made.upsert([row("a"), row("b", None, low=None), row("n", float("nan"))])
        yield made


def refused(call, sql_="amount >= 0"):
    with pytest.raises(ConstraintError) as told:
        call()
    error = pickle.loads(pickle.dumps(told.value))
    assert (error.constraint, error.landed, error.retryable) == (sql_, False, False)
    assert repr(sql_) in str(error)
    return error


def test_every_write_is_checked_and_null_passes(table):
    before, commits = sorted(table.read().to_pylist(), key=lambda each: each["id"]), table.commits()
    assert len(before) == 3
    error = refused(lambda: table.upsert([row("x"), row("ü🌙", -1.5), row("z", -2)]))
    assert set(error.keys) == {"ü🌙", "z"}
    assert set(error.values) == {(-1.5,), (-2.0,)}
    assert "2 rows break the check 'amount >= 0'" in str(error)
    assert "'ü🌙'" in str(error)
    refused(lambda: table.insert([row("x", -1)]))
    refused(lambda: table.overwrite_table([row("x", -1)]))
    refused(lambda: table.update_where("id = 'a'", {"amount": sql("amount - 5")}))
    refused(lambda: table.merge([row("a", -1)]).when_matched(update="all").run())
    refused(lambda: table.merge([row("q", -1)]).when_not_matched(insert="all").run())
    error = refused(lambda: table.upsert([row("x", low=1, high=1)]), "low < high")
    assert error.values == [(1, 1)]
    assert "high=1, low=1 in row 'x'" in str(error)

    def two(txn):
        txn.upsert([row("x")])
        txn.upsert([row("y", -1)])

    refused(lambda: table.run(two))
    assert sorted(table.read().to_pylist(), key=lambda each: each["id"]) == before or "nan" in str(before)
    assert table.commits() == commits
    assert not table.session.log.catch_up().open
    table.delete([{"id": "a"}])
    table.upsert([row("x", 0.0), row("y", float("inf")), row("z", -0.0)])
    assert check(table.store, deep=True).sound(strict=True)


def test_what_a_merge_computes_is_checked(tmp_path):
    with lakelatch.create(tmp_path / "t", record_key="id", merge={"n": "sum"}, check="n <= 10") as table:
        table.upsert([{"id": "a", "n": 6}])
        error = refused(lambda: table.upsert([{"id": "a", "n": 5}]), "n <= 10")
        assert (error.values, error.keys) == ([(11,)], ["a"])
        with lakelatch.open(table.url) as other:  # the sum of both only comes about in the rebase
            txn = table.transaction()
            txn.upsert([{"id": "a", "n": 3}])
            other.upsert([{"id": "a", "n": 2}])
            refused(txn.commit, "n <= 10")
        assert table.read().to_pylist() == [{"id": "a", "n": 8}]
        assert not table.session.log.catch_up().open


def test_what_a_condition_computes_anew_is_checked(tmp_path):
    with lakelatch.create(tmp_path / "t", record_key="id", check="n <= 10") as table:
        table.upsert([{"id": "a", "n": 4}, {"id": "b", "n": 0}])
        with lakelatch.open(table.url) as other:
            txn = table.transaction()
            txn.update_where("id = 'a'", {"n": sql("n + 4")})
            other.update_where("id = 'b'", {"n": 1})
            other.upsert([{"id": "b", "n": 2}])
            txn.commit()
            assert {each["id"]: each["n"] for each in table.read().to_pylist()} == {"a": 8, "b": 2}


def test_a_check_that_rows_break_is_not_set(table):
    table.upsert([row("x", 5.0), row("y", 7.0)])
    before = table.settings
    error = refused(lambda: table.change_settings(check=["amount >= 0", "amount < 6"]), "amount < 6")
    assert set(error.keys) >= {"y"}
    assert table.settings == before
    table.change_settings(check=["low < high", "low <> 7"])
    table.upsert([row("x", -5.0)])
    refused(lambda: table.upsert([row("x", low=7, high=8)]), "low <> 7")
    table.change_settings(check=[])
    table.upsert([row("x", low=7, high=7)])


def test_a_transaction_that_began_before_a_check_does_not_land_unchecked(table):
    with lakelatch.open(table.url) as other:
        txn = table.transaction()
        txn.upsert([row("x", 50.0)])
        other.upsert([row("n", 1.0)])
        other.change_settings(check=["amount >= 0", "low < high", "amount < 10"])
        with pytest.raises(ConflictError, match="another check since"):
            txn.commit()
        refused(lambda: table.upsert([row("x", 50.0)]), "amount < 10")
        kept = table.transaction()
        kept.upsert([row("x", 5.0)])
        other.change_settings(check=["amount >= 0"])  # fewer are no matter
        kept.commit()


def test_a_restore_to_rows_that_break_a_check_is_refused(table):
    table.change_settings(check=[])
    table.upsert([row("x", -5.0)])
    then = table.commits()[-1][0].requested
    table.upsert([row("x", 5.0)])
    table.change_settings(check="amount >= 0")
    with pytest.raises(ConstraintError, match=r"check=\[\]"):
        table.restore(then)
    table.change_settings(check=[])
    table.restore(then)


def test_a_deep_check_finds_rows_that_break_one(table):
    assert check(table.store, deep=True).sound()
    table.change_settings(check=[])
    table.upsert([row("x", -5.0)])
    from dataclasses import replace

    from lakelatch.occ.entries import Setting

    table.session.log.append(lambda state: Setting(replace(state.settings, check=("amount >= 0",)), "another"))
    (found,) = check(table.store, deep=True).findings
    assert found.kind == "check-broken"
    assert "amount=-5.0 in row 'x'" in found.message
    assert not check(table.store).findings


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("amount >", "check='amount >'"),
        ("", "check"),
        (5, "check is 5"),
        ([5], "check is"),
        (None, "check is None"),
        (["a > 0", "a > 0"], "twice"),
        ("select 1", "check='select 1'"),
    ],
)
def test_what_is_no_condition_is_refused(tmp_path, given, why):
    with pytest.raises(ConfigError, match=why):
        lakelatch.create(tmp_path / "t", record_key="id", check=given)
    assert not (tmp_path / "t").exists()


def test_columns_that_do_not_fit_are_named(tmp_path):
    for wrong in ("nope > 0", "id > 0 and part", "s > 1"):
        with pytest.raises(InputError, match="check="):
            lakelatch.create(tmp_path / "t", record_key="id", schema=SCHEMA, check=wrong)
    with lakelatch.create(tmp_path / "t", record_key="id", check="n > 0") as table:
        with pytest.raises(InputError, match="check='n > 0'"):
            table.upsert([{"id": "a", "m": 1}])
        table.upsert([{"id": "a", "n": 1}])
        table.add_column("m", "bigint")
        table.upsert([{"id": "a", "n": 2, "m": 1}])
        with pytest.raises(InputError, match="check='k > 0'"):
            table.change_settings(check=["k > 0"])


def test_a_check_without_a_result_is_named(tmp_path):
    with lakelatch.create(tmp_path / "t", record_key="id", check="6 / n > 1") as table:
        table.upsert([{"id": "a", "n": 2}])
        with pytest.raises(InputError, match=r"check='6 / n > 1': .*division by zero"):
            table.upsert([{"id": "b", "n": 0}])
        assert table.read().count() == 1


def test_fields_of_a_struct_and_functions_are_read(tmp_path):
    with lakelatch.create(
        tmp_path / "t", record_key="id", schema=SCHEMA, check=["s.n between 0 and 9", "length(id) <= 3 -- short"]
    ) as table:
        table.upsert([row("a", n=9)])
        refused(lambda: table.upsert([row("a", n=10)]), "s.n between 0 and 9")
        refused(lambda: table.upsert([row("abcd")]), "length(id) <= 3 -- short")


def test_it_goes_with_no_rule_that_readers_carry_out(tmp_path):
    with pytest.raises(ConfigError, match="merge-on-read and merges columns"):
        lakelatch.create(
            tmp_path / "t",
            record_key="id",
            type="merge_on_read",
            table_version=9,
            merge="partial_update",
            check="n > 0",
        )
    lock = f"file://{tmp_path}/lock?jvm=lock"
    with pytest.raises(ConfigError, match="goes with no check"):
        lakelatch.create(tmp_path / "t", record_key="id", lock=lock, neighbours="hudi", check="n > 0")
    with lakelatch.create(
        tmp_path / "s", record_key="id", type="merge_on_read", table_version=9, bucket_count=2, check="n > 0",
        schema=pa.schema([("id", pa.string()), ("n", pa.int64()), ("at", pa.int64())]),
    ) as table, pytest.raises(ConfigError, match="no check"):  # fmt: skip
        table.stream("s", columns=["n"], ordering="at")


def test_exist_ok_compares_it_and_the_command_line_takes_it(tmp_path):
    run, url = Runner(), str(tmp_path / "t")
    made = run.invoke(app, ["create", url, "--record-key", "id", "--check", "n >= 0", "--check", "n < 5"])
    assert made.exit_code == 0, made.output
    lakelatch.create(url, record_key="id", check=["n >= 0", "n < 5"], exist_ok=True).close()
    with pytest.raises(ConfigError, match="check is"):
        lakelatch.create(url, record_key="id", check="n >= 0", exist_ok=True)
    assert "check (n >= 0), check (n < 5)" in run.invoke(app, ["describe", url]).output
    assert run.invoke(app, ["settings", url, "check=n >= 0, or"]).exit_code == 2
    assert run.invoke(app, ["settings", url, 'check=["n >= -1"]']).exit_code == 0
    assert run.invoke(app, ["settings", url, "check=n >= -2"]).exit_code == 0
    with lakelatch.open(url) as table:
        assert table.settings.check == ("n >= -2",)


def test_a_table_without_one_stores_no_such_setting(tmp_path):
    with lakelatch.create(tmp_path / "t", record_key="id") as table:
        assert "check" not in table.settings.to_json()


def test_a_large_write_copies_what_it_does_not_change(tmp_path):
    """Row groups without a change are copied as bytes, and their rows not looked at again."""
    with lakelatch.create(tmp_path / "t", record_key="id", check="n >= 0") as table:
        table.insert(pa.table({"id": [f"{n:06}" for n in range(150_000)], "n": list(range(150_000))}))
        table.upsert([{"id": "000005", "n": 7}])
        error = refused(lambda: table.upsert([{"id": "140000", "n": -1}]), "n >= 0")
        assert error.keys == ["140000"]
        assert table.read().count() == 150_000
