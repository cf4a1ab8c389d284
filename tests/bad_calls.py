# ruff: noqa: E501 - a list of calls, one beside the other
"""Calls that cannot be right, on every door: what each raises, and that it writes nothing.

`tests/bad_calls.md` is the table of them, for people to read. After a change: ``python -m tests.bad_calls --write``.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
import lakelatch.conditions
import lakelatch.locks.hudi
import lakelatch.mergers
import lakelatch.storage.probe
from lakelatch.errors import LakeLatchError

from .command_line import Runner

# The help of a command line whose shell is not known: it says other things where typer finds one.
os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"

PAGE = Path(__file__).with_suffix(".md")
ROWS = pa.table({"id": ["a", "b"], "p": ["x", "y"], "n": [1, 2], "x": [0.5, 1.5]})


@dataclass(frozen=True)
class Raised:
    """What a call did: the class of its error (or that it raised none), the message, and files that it changed."""

    door: str
    call: str
    kind: str
    message: str
    ours: bool
    written: tuple[str, ...]
    begun: bool = False


def each(call: str, values: str) -> list[str]:
    """The call with each of these values, which are separated by blanks, in place of ``_``."""
    return [re.sub(r"\b_\b", lambda _, value=value: value, call) for value in values.split()]


def calls() -> dict[str, list[str]]:
    """The calls of each door, as Python; what the names mean is in `names`."""
    return {
        "lakelatch.create": [
            *each("create(_, record_key='id')", "5 None b'/tmp/t' [] '' True"),
            "create('ftp://host/t', record_key='id')",
            "create('s3://', record_key='id')",
            "create('file://host/t', record_key='id')",
            "create(new, record_key=())",
            *each("create(new, record_key=_)", "5 b'id' [] '' [1] [['id']] ['id','id'] {'id':1} True"),
            *each("create(new, record_key='id', partition_by=_)", "5 b'p' [1] [['p']] ['p','p'] '' True"),
            "create(new, record_key='id', partition_by='id.x', schema=ROWS.schema)",
            *each("create(new, record_key='id', ordering_field=_)", "5 b'n' [] ['n','n'] ['n',''] [5] ['n','v'] 'n,v' '' True"),
            *each("create(new, record_key='id', merge=_)", "5 'sum' {'nope':1} {5:'sum'} {'n':'nope'} {'n':5} {'n':None} {'id':'sum'}"),
            *each("create(new, record_key='id', ties=_)", "5 '' 'middle' None b'last' True"),
            "create(new, record_key='id', merge={'p': 'sum'}, schema=ROWS.schema)",
            "create(new, record_key='id', merge={'nope': 'sum'}, schema=ROWS.schema)",
            "create(new, record_key='id', ordering_field='n', merge={'n': 'sum'}, schema=ROWS.schema)",
            *each("create(new, record_key='id', schema=_)", "5 'id' [] {'id':'string'} ROWS pa.schema([])"),
            "create(new, record_key='nope', schema=ROWS.schema)",
            "create(new, record_key='id', partition_by='nope', schema=ROWS.schema)",
            "create(new, record_key='id', ordering_field='nope', schema=ROWS.schema)",
            "create(new, record_key='id', schema=pa.schema([('id', pa.string()), ('ID', pa.string())]))",
            "create(new, record_key='id', schema=pa.schema([('id', pa.string()), ('', pa.string())]))",
            "create(new, record_key='id', schema=pa.schema([('id', pa.string()), ('u', pa.month_day_nano_interval())]))",
            *each("create(new, record_key='id', table_version=_)", "0 7 10 -1 '8' 8.5 None True"),
            *each("create(new, record_key='id', type=_)", "5 'cow' '' None b'copy_on_write'"),
            *each("create(new, record_key='id', name=_)", "5 b't' ['t'] 'a=b\\n' '\\x00'"),
            *each("create(new, record_key='id', database=_)", "5 b'd' None ['d']"),
            *each("create(new, record_key='id', hive_style=_)", "5 'yes' None"),
            *each("create(new, record_key='id', storage=_)", "5 'key' ['key']"),
            *each("create(new, record_key='id', writer=_)", "5 b'w' ['w']"),
            "create(new, record_key='id', nonsense=1)",
            *each("create(new, record_key='id', bucket_count=_)", "0 -1 1.5 '4' nan 2**63 True [4]"),
            *each("create(new, record_key='id', isolation=_)", "5 '' 'perfect' None b'snapshot'"),
            *each("create(new, record_key='id', strategy=_)", "5 '' 'luck' None"),
            *each("create(new, record_key='id', lock=_)", "5 '' 'telepathy://x' None b'table' 'redis://' 'zk://'"),
            *each("create(new, record_key='id', lease_s=_)", "0 -1 nan inf '30' None True 2**63"),
            *each("create(new, record_key='id', heartbeat_timeout_s=_)", "0 -1 nan inf '60' 1"),
            *each("create(new, record_key='id', unique_constraints=_)", "5 [5] [[]] [['n','n']] [[[]]] b'n'"),
            *each("create(new, record_key='id', check=_)", "5 [5] '' 'a>' [[]] b'n' None True ['n>0','n>0'] 'select'"),
            "create(new, record_key='id', check='nope > 0', schema=ROWS.schema)",
            "create(new, record_key='id', check='n + 1', schema=ROWS.schema)",
            *each("create(new, record_key='id', statistics=_)", "5 [5] b'all' [['n']]"),
            *each("create(new, record_key='id', early_conflict_detection=_)", "5 'maybe' None True"),
            *each("create(new, record_key='id', log_epochs=_)", "0 -1 nan '3' 1.5 None"),
            *each("create(new, record_key='id', rebase=_)", "5 'no' None"),
            *each("create(new, record_key='id', generation=_)", "5"),
            "create(url, record_key='id')",
            "create(url, record_key='n', exist_ok=True)",
            "create(folder_with_files, record_key='id')",
        ],
        "lakelatch.open": [
            *each("open(_)", "5 None b'/tmp/t' [] '' True missing"),
            "open(a_file)",
            "open('ftp://host/t')",
            "open('s3://')",
            "open('s3://bucket/t', storage={'nonsense': 1})",
            "open(url, storage={'region': 'x'})",
            *each("open(url, storage=_)", "5 'region' []"),
            *each("open(url, lock=_)", "5 '' 'telepathy://x' b'table' []"),
            *each("open(url, isolation=_)", "5 '' 'perfect' 'serializable'"),
            *each("open(url, strategy=_)", "5 '' 'luck' 'bucket'"),
            *each("open(url, priority=_)", "1.5 'high' nan None 7"),
            *each("open(url, threads=_)", "0 -1 1.5 nan 'x' True"),
            *each("open(url, writer=_)", "5 b'w' ['w']"),
        ],
        "lakelatch.adopt": [
            *each("adopt(_)", "5 None b'/tmp/t' '' missing"),
            "adopt(url)",
            "adopt(foreign, 'telepathy://x')",
            *each("adopt(foreign, _)", "5 b'table' []"),
            "adopt(foreign, nonsense=1)",
            *each("adopt(foreign, bucket_count=_)", "0 'four' 1.5"),
            *each("adopt(foreign, streams=_)", "5 [] {'s':5}"),
            "adopt(foreign, generation=4)",
        ],
        "Table.read": [
            *each("t.read(columns=_)", "5 '' 'nope' b'id' [] [5] [None] [['id']] ['id','id'] ['nope'] True"),
            *each("t.read(partitions=_)", "5 'p=x' b'p=x' {'p':'x'} [5] [None] ['x'] ['p=zzz'] [{'q':1}] [{}] [{'p':5}] [['p=x']]"),
            *each("t.read(as_of=_)", "5 '' 'yesterday' b'20260101' nan [] True -1 2**63 '2026-13-01' '2026-02-30' '0'"),
            *each("t.read(as_of_completion=_)", "5 'yesterday' [] nan"),
            *each("t.read(read_optimized=_)", "1 'yes' None"),
            *each("t.read(limit=_)", "-1 1.5 '5' nan True [] b'1'"),
            *each("t.read().head(_)", "-1 None 'x' nan"),
            "t.read(as_of='2020-01-01')",
            "t.read(as_of=datetime.date(1, 1, 1))",
            "t.read(as_of='2026-01-01', as_of_completion='2026-01-01')",
            "t.read().to_duckdb(5)",
        ],
        "conditions": [
            *each("t.read(where=_)", "5 '' b'n=1' [5] [None] True nan {} object() [()] [('n',)] [('n','<')]"),
            *(f"t.read(where={text!r})" for text in (
                " ", "n", "n <", "n = ", "nope = 1", "n = 'x' +", "n === 1", "n = 1; drop table t", "n = 1 -- comment\n)",
                "n in ()", "n between 1", "n like 5", "p like", "case when n then", "(n = 1", "n = 1)", "'n = 1", "select 1",
                "n = (select 1)", "exists (select 1)", "sum(n) > 1", "row_number() over () > 1", "rand() > 0.5", "n + 1",
                "x.y = 1", "n = 99999999999999999999999999999999999999999", "n = 1e999", "p = 1 and n = 'x",
                "cast(n as nonsense) = 1", "udf(n) = 1", "n is not", "not", "and n = 1", "n = 1 or", "@n = 1", "n = ?",
                "n = {x}", "%s = n", "n\x00 = 1", "\U0001d11e = 1", "n < p < x", "*", "n = *", "n = date 'yesterday'",
            )),
            "t.read(where=[('nope', '=', 1)])",
            "t.read(where=[('n', '=', Decimal('1E+50'))])",
            *each("lakelatch.conditions.condition_on(_, 'n = 1')", "5 None"),
            "t.read(where=[('n', '~', 1)])",
            "t.read(where=[('n', '=', 'x')])",
            "t.read(where=[('n', '=', [1])])",
            "t.read(where=[('n', 'in', 1)])",
            "t.read(where=[(5, '=', 1)])",
            "t.read(where=[('n', '=', object())])",
            "t.read(where=[('n', '=', 1, 2)])",
            "t.read(where=pc.field('nope') == 1)",
            "t.read(where=pc.field('n') + 1)",
            "t.read(where=pc.field(5) == 1)",
            "t.read(where=pc.scalar(5))",
        ],
        "Table, times": [
            *each("t.commits(after=_)", "'yesterday' '' b'0' [] nan 1.5 True -1"),
            *each("t.commits(until=_)", "'yesterday' [] nan"),
            *each("t.snapshot(as_of=_)", "'yesterday' [] nan '2020-01-01'"),
            *each("t.changes(after=_)", "'yesterday' [] nan True"),
            *each("t.changes(columns=_)", "5 'nope' [] [5]"),
            *each("t.change_feed(after=_)", "'yesterday' '' [] nan True b'0'"),
            *each("t.change_feed(until=_)", "'yesterday' [] nan"),
            *each("t.change_feed(columns=_)", "5 'nope' [] [5] ['nope'] b'id'"),
            *each("t.why(_)", "'yesterday' '20260101000000000' 5 None []"),
            *each("next(t.events(after=_))", "'yesterday' [] nan"),
            *each("next(t.events(after='2020-01-01', every_s=_))", "0 -1 nan 'x' None"),
            *each("t.savepoint(_)", "'yesterday' '20200101000000000' 5 []"),
            *each("t.savepoint(comment=_)", "5 None b'x'"),
            *each("t.delete_savepoint(_)", "'yesterday' '20200101000000000' None []"),
            *each("t.restore(_)", "'yesterday' '20200101000000000' None []"),
            *each("t.pinned(as_of_completion=_).__enter__()", "'yesterday' [] '2020-01-01'"),
        ],
        "Table, services": [
            *each("t.clean(retain_commits=_)", "-1 1.5 '3' nan True []"),
            *each("t.clean(retain_hours=_)", "-1 'x' nan inf []"),
            *each("t.archive(keep_min=_)", "0 -1 'x' nan 1.5"),
            "t.archive(keep_min=5, keep_max=3)",
            *each("t.run_services(retain_commits=_)", "-1 '3' nan True"),
            *each("t.run_services(keep_min=_)", "0 'x'"),
            *each("t.run_services(cluster=_)", "'x' None"),
            *each("t.run_services(stop=_)", "True None"),
            "t.run_services(progress=5)",
            *each("t.run_services(cluster=True, sort_by=_)", "5 [] ['id','id']"),
            *each("t.run_services(cluster=True, layout=_)", "'hilbert' None 'z-order'"),
            "t.run_services(sort_by='id')",
            *each("t.cluster(partitions=_)", "5 'p=x' ['nope'] [5]"),
            *each("t.cluster(target_bytes=_)", "0 -1 'x' nan"),
            *each("t.cluster(small_bytes=_)", "-1 'x' nan"),
            *each("t.cluster(sort_by=_)", "5 [] ['nope'] [5] ['id','id']"),
            *each("t.cluster(sort_by='id', layout=_)", "'hilbert' None 5"),
            "t.cluster(layout='z-order')",
            *each("t.cluster(runner=_)", "5 None"),
            *each("t.clean(runner=_)", "5 None"),
            *each("t.read().parts(bytes_max=_)", "0 None 'x'"),
            "t.plan_compaction(partitions=['nope'])",
            *each("t.compact_logs(min_logs=_)", "1 'x' nan True"),
            "t.plan_log_compaction(partitions=['nope'])",
            *each("t.execute(_)", "'yesterday' '20200101000000000' None 5 []"),
            *each("t.cancel_plan(_)", "'yesterday' None 5 []"),
            *each("t.set_lock(_)", "5 '' None 'telepathy://x' b'table' []"),
            "t.change_settings(nonsense=1)",
            "t.change_settings(lock='table', bucket_count=4)",
            *each("t.change_settings(bucket_count=_)", "0 -1 '4' nan"),
            *each("t.change_settings(target_file_bytes=_)", "0 1023 '4' nan True 2**50"),
            *each("t.change_settings(small_file_bytes=_)", "-1 1.5 '4'"),
            "t.change_settings(target_file_bytes=2048, small_file_bytes=4096)",
            *each("t.change_settings(isolation=_)", "5 'perfect' None"),
            *each("t.change_settings(heartbeat_timeout_s=_)", "0 nan inf '60'"),
            *each("t.change_settings(unique_constraints=_)", "5 ['nope'] [[]]"),
            *each("t.change_settings(statistics=_)", "5 [5]"),
            *each("t.change_settings(archive_above=_)", "0 1 -5 '9' 2.5 True"),
            *each("t.change_settings(min_version=_)", "0 -1 'x' 99"),
            "t.change_settings(coordinator='http://x\\ud800')",
            *each("lakelatch.mergers.join(_, 'left', left='n', right='x')", "5 None"),
            *each("lakelatch.storage.probe.probe(_)", "5 '/tmp'"),
        ],
        "Table, verbs": [
            *(f"t.{verb}({rows})" for verb in ("upsert", "insert", "overwrite", "overwrite_table", "delete", "merge")
              for rows in ("5", "None", "'id'", "b'id'", "{'id': 'a'}", "[5]", "[[1]]", "object()", "pa.array([1])", "True")),
            "t.upsert([{'id': 'a'}])",
            "t.upsert([{'n': 1, 'p': 'x', 'x': 0.5}])",
            "t.upsert([{'id': None, 'p': 'x', 'n': 1, 'x': 0.5}])",
            "t.upsert([{'id': '', 'p': 'x', 'n': 1, 'x': 0.5}])",
            "t.upsert([{'id': 'c', 'p': 'x', 'n': 'many', 'x': 0.5}])",
            "t.upsert([{'id': 'c', 'p': 'x', 'n': 1.5, 'x': 0.5}])",
            "t.upsert([{'id': 'c', 'p': 'x', 'n': 2**63, 'x': 0.5}])",
            "t.upsert([{'id': 'c', 'p': 'x', 'n': [1], 'x': 0.5}])",
            *each("t.upsert([{'id': 'c', 'p': 'x', 'n': _, 'x': 0.5}])", "2**70 1j object() lakelatch.sql('n+1') Decimal('NaN') Decimal('Infinity') numpy.longdouble(1)"),
            *each("t.upsert([{'id': 'c', 'p': _, 'n': 1, 'x': 0.5}])", "'\\ud800' object() numpy.datetime64('2026-01-01T00:00:00.000000001') numpy.datetime64('30000-01-01')"),
            "t.upsert([{'id': 'c', 'p': 'x', 'n': 1, 'x': 0.5}, {'id': 'd', 'p': 'x', 'n': object(), 'x': 0.5}])",
            "t.upsert(pandas.DataFrame({'id': ['c'], 'p': ['x'], 'n': [2j], 'x': [0.5]}))",
            "t.insert(pa.RecordBatchReader.from_batches(ROWS.schema, [ROWS.drop_columns('x').to_batches()[0]]))",
            "t.upsert(row for row in ROWS.to_pylist())",
            "t.upsert([{5: 'c'}])",
            "t.upsert([{'id': 'c', 'p': 'x', 'n': 1, 'x': 0.5}] * 2)",
            "t.upsert(ROWS.append_column('', ROWS['n']))",
            "t.upsert(ROWS.append_column('N', ROWS['n']))",
            "t.upsert(ROWS.append_column('n', ROWS['n']))",
            "t.upsert(ROWS.append_column('at', pa.array([datetime.datetime(2026, 1, 1)] * 2)))",
            "t.upsert(ROWS.append_column('u', pa.nulls(2, pa.month_day_nano_interval())))",
            *each("t.upsert(ROWS, missing=_)", "5 '' None True 'Null' b'null'"),
            *each("t.upsert(ROWS, zone=_)", "5 '' 'Mars' b'UTC' True"),
            *each("t.upsert(ROWS, attempts=_)", "0 -1 1.5 'x' nan None True"),
            *each("t.upsert(ROWS, timeout_s=_)", "-1 'x' nan None"),
            *each("t.upsert(ROWS, progress=_)", "5 'bar' 1.5 [] {}"),
            *each("t.delete([{'id':'a'}], progress=_)", "5 'bar' 1.5"),
            *each("t.read(progress=_)", "5 'bar' 1.5 []"),
            *each("t.clean(progress=_)", "5 'bar' 1.5"),
            "t.upsert(ROWS, nonsense=1)",
            *each("t.overwrite(ROWS, partitions=_)", "5 'p=x' ['nope'] [5] [{'p':'x'}] [{'q':1}] []"),
            "t.delete([{'p': 'x'}])",
            "t.delete([{'id': 5.5}])",
            *each("t.delete_where(_)", "5 '' None [] () b'n=1' True 'nope=1' 'n' {}"),
            *each("t.delete_where('n=1', partition=_)", "5 'nope' b'p=x' [] {'q':1} {'p':5} {}"),
            *each("t.delete_all(partition=_)", "5 'nope' b'p=x' [] {'q':1}"),
            *each("t.update_where('n = 1', _)", "5 None {} [] 'n=1' {'nope':1} {'id':'z'} {5:1} {'n':'many'} {'n':[1]} {'n':object()} {'n':2**63}"),
            *each("t.update_where(_, {'n': 0})", "5 '' None 'nope=1' b'n=1' []"),
            *each("t.merge(ROWS).when_matched(_).run()", "5 '' 'nope=1' b's.n=1' 's.n'"),
            *each("t.merge(ROWS).when_matched(update=_).run()", "5 '' 'some' [] {} {'nope':1}"),
            *each("t.merge(ROWS).when_not_matched(insert=_).run()", "5 '' 'some' [] {} {'nope':1}"),
            "t.merge(ROWS).when_matched(update='all', delete=True).run()",
            "t.merge(ROWS).run()",
            *each("t.run(_)", "5 None 'x' []"),
            "t.run(lambda: None)",
            "t.run(lambda txn, more: None)",
            "t.run(later)",
            "t.run(lambda txn: later(txn))",
            "t.run(one_by_one)",
            *each("t.run(work, attempts=_)", "0 -1 1.5 'x' nan None"),
            *each("t.run(work, timeout_s=_)", "-1 'x' nan None"),
            *each("t.run(work, backoff_s=_)", "-1 'x' nan None"),
            *each("t.run(work, lost_work_max_s=_)", "-1 'x' nan"),
            *each("t.run(work, reserve_after=_)", "-1 'x' nan 1.5"),
            *each("t.run(work, operation=_)", "5 '' 'merge' None b'upsert'"),
            *each("t.transaction(_)", "5 '' 'merge' None b'upsert' []"),
            *each("t.transaction(isolation=_)", "5 '' 'perfect' b'snapshot'"),
            *each("t.transaction(batch=_)", "5 'q' ('q',) ('',1) ('q',-1) ('q',1.5) (5,1)"),
            *each("t.upsert(ROWS, batch=_)", "'q' ('q','1')"),
            *each("t.upsert(ROWS, note=_)", "'job' 5 [('a','b')] {'a':1} {'a':None} {1:'a'} {'':'a'} {'schema':'x'} {'lakelatch.batch':'x'} {'a':'\\ud800'} {'a':'v'*5000} b'x' True"),
            *each("t.transaction(note=_)", "'job' {'hoodie.x':'y'}"),
            "t.add_column('z', 'bigint', note='x')",
            *each("t.last_batch(_)", "5 '' None"),
            *each("t.transaction(reserve=_)", "5 'nope' ['nope'] [5] b'table'"),
            *each("t.transaction(first=_)", "-1 'x' nan 1.5"),
            *each("t.add_column(_, 'int64')", "5 '' None 'n' 'N' b'c' [] '_hoodie_record_key'"),
            *each("t.add_column('c', _)", "5 '' None 'nope' b'int64' [] pa.null()"),
            *each("t.widen_column(_, 'int64')", "5 '' None 'nope' 'p' 'n' []"),
            *each("t.drop_column(_)", "5 '' None 'nope' 'p' 'n.x' 'n.' []"),
            *each("t.widen_column('n', _)", "5 '' None 'int32' 'string'"),
        ],
        "Transaction": [
            *each("txn.read(columns=_)", "5 'nope' []"),
            *each("txn.read(where=_)", "5 '' 'nope=1'"),
            *each("txn.read(partitions=_)", "5 'p=x' [5]"),
            *each("txn.upsert(_)", "5 None [5] [{'id':1}]"),
            *each("txn.delete(_)", "5 None [{'p':'x'}]"),
            *each("txn.delete_where(_)", "5 '' None 'nope=1' []"),
            *each("txn.depends_on(_)", "5 'nope' b'p=x' []"),
            *each("txn.depends_on(None, where=_)", "5 'nope=1' [5] b'n=1'"),
            *each("txn.mark_scanned(_)", "5 'nope' []"),
            *each("txn.mark_lookup(_)", "5 'nope' []"),
            *each("txn.rewrite(_)", "5 None 'x' []"),
            *each("txn.new_file(_)", "5 'nope' b'p=x' None []"),
            *each("txn.new_file('p=x', file_id=_)", "5 'a/b' []"),
            *each("txn.file_spec(_)", "5 None [] 'id'"),
            *each("txn.add(_)", "5 None [5] 'x'"),
            *each("txn.drop_file_groups(_)", "5 None [5] 'x'"),
            *each("txn.overwrites(_)", "5 'nope' []"),
            *each("txn.read_slice(_)", "5 None 'x'"),
            *each("txn.add_column(_, 'int64')", "5 'n'"),
            *each("txn.drop_column(_)", "5 'nope'"),
            *each("txn.abort(_)", "5 None b'x' [] '\\ud800'"),
        ],
        "Table.stream and its writes": [
            *each("wide.stream(_)", "5 None '' 'nope' '\\ud800'"),
            *each("wide.stream('c', columns=_, ordering='c_at')", "5 [] '' ['nope'] ['c','c'] ['id'] ['a'] ['a_at'] ['c_at'] '\\ud800'"),
            *each("wide.stream('c', columns='c', ordering=_)", "5 None '' 'nope' 'id' 'a' 'a_at' 'l' [] ['c_at','l'] ['c_at','c_at'] ['c_at','id']"),
            *each("wide.stream('c', columns='c', ordering='c_at', on_delete=_)", "5 None 'drop' 'row' []"),
            *each("wide.stream('c', columns='c', ordering='c_at', null=_)", "5 None 'skip' 'write' []"),
            *each("wide.stream('c', columns='c', ordering='c_at', null='write', foreign_readers=_)", "True 1 None 'no'"),
            *each("wide.stream('c', columns='c', ordering='c_at', default=_)", "5 [] {'c':None} {'c':nan} {'c':'x'} {'c':True} {'c':0.5} {'c':10**5000} {'a':1} {5:1}"),
            *each("wide.stream('c', columns='l', ordering='c_at', default=_)", "{'l':[1]} {'l':1} {'l':'[1]'}"),
            *each("wide.stream('one', columns=['a'], ordering='a_at', on_delete='row', default=_)", "{'a':1} {'a':False} {'a':'0'}"),
            *each("wide.stream('one', columns=['a'], ordering='a_at', on_delete=_)", "'clear' 'ignore'"),
            *each("wide.stream('c', columns=['c','l'], ordering='c_at', foreign_readers=False, merge=_)", "5 [] 'sum' {'c':5} {'c':''} {'c':'nope'} {'c':'sum('} {'c':'first'} {'c':'last_non_null'} {'l':'collect_list'} {'l':'sum'} {'c':'no_module:X'} {'a':'sum'} {5:'sum'} {'c':'\\ud800'}"),
            "wide.stream('c', columns='c', ordering='c_at', merge={'c':'sum'})",
            "wide.stream('c', columns='c', ordering='c_at', merge={'c':'sum'}, default={'c':2**63-1}, foreign_readers=False)",
            "wide.stream('one', columns=['a','c'], ordering='a_at', on_delete='row', merge={'c':'max'}, foreign_readers=False)",
            *each("wide.stream('adds', columns='s', ordering='s_at', foreign_readers=False, merge=_)", "None {} {'s':'max'}"),
            "wide.stream('adds', merge={'s':'sum'})",
            "adds.upsert([{'id': 'x', 's': 1, 's_at': 1}])",
            "adds.upsert([{'id': 'x', 's': 1, 's_at': 1}], batch='x')",
            "adds.upsert([{'id': 'x', 's': 2**62, 's_at': 1}], batch=('x', 1))",
            "adds.delete([{'id': 'x', 's_at': 1}])",
            *each("wide.stream('one', _)", "null='write' default={'a':0} default={} on_delete='row' foreign_readers=False ordering='a_at'"),
            "wide.stream('one', columns=['a'], ordering='c_at', on_delete='row')",
            *each("wide.stream('c', columns='c', ordering='c_at', foreign_readers=False, events='l', event_id=_)", "5 None '' 'nope' 'c' 'c_at' 'id' 'a'"),
            *each("wide.stream('c', columns='c', ordering='c_at', foreign_readers=False, event_id='c', events=_)", "5 None '' 'nope' 'c' 'l' 'a'"),
            "wide.stream('c', columns='c', ordering='c_at', event_id='c', events='l')",
            "wide.stream('c', columns='c', ordering='c_at', event_id='c', events='l', default={'c': 0}, foreign_readers=False)",
            *each("one.alter(default=_)", "5 {'a':'x'} {'nope':1} {'a_at':1} {'a':nan} {5:1}"),
            *each("one.alter(null=_)", "5 'skip' 'write'"),
            *each("one.alter(merge=_)", "5 {'a':'sum'} {'nope':'sum'} {'a':5}"),
            *each("one.alter(foreign_readers=_)", "5 'no'"),
            "adds.alter(default={'s': 2**63-1})",
            *each("one.retract(_)", "5 [] [{'id':'x'}] [{'id':'x','a':1}]"),
            *each("one.overwrite(_)", "5 None [5] [{'id':'x','a':1}] [{'id':'x','a':1,'a_at':None}]"),
            *each("one.overwrite([{'id':'x','a':1,'a_at':1}], partitions=_)", "5 '' [5] ['nope'] [] [{'day':1}]"),
            "wide.delete_all(partition='nope')",
            "t.stream('one', columns=['n'], ordering='x')",
            *each("wide.change_settings(_)", "merge={'a':'sum'} ties='first'"),
            *each("one.upsert(_)", "5 None 'x' [5]"),
            *each("one.upsert([{'id': 'x', 'a': 1, 'a_at': _}])", "None 'x' 1.5 2**70"),
            "one.upsert([{'id': 'x', 'a': 1}])",
            "one.upsert([{'id': 'x', 'a_at': 1}])",
            "one.upsert([{'id': None, 'a': 1, 'a_at': 1}])",
            "one.upsert([{'id': 'x', 'a': 1, 'a_at': 1, 'c': 1}])",
            "two.upsert([{'id': 'x', 'b': 1.0, 'b_at': nan}])",
            *each("one.upsert(EVENTS, batch=_)", "5 'q' ('q',-1) ('',1) ('\\ud800',1)"),
            *each("one.upsert(EVENTS, _)", "nope=1 attempts=0 zone='Nowhere' zone=5"),
            *each("one.delete(_)", "5 None 'x' ['x'] [{'id':'x'}] [{'id':'x','a_at':None}]"),
            *each("wide.explain_row(_)", "5 None '' []"),
            "wide.explain_row('x', partition='p')",
            "t.explain_row('a')",
            "wide.delete_where('a = 1')",
            "wide.update_where('a = 1', {'a': 2})",
            "wide.delete([{'id': 'x'}])",
        ],
        "what is over": [
            *(f"closed.{call}" for call in (
                "read()", "snapshot()", "schema()", "timeline()", "commits()", "changes()", "why('20260101000000000')",
                "upsert(ROWS)", "insert(ROWS)", "delete(ROWS)", "delete_where('n=1')", "overwrite(ROWS)", "run(work)",
                "transaction()", "clean()", "cluster()", "archive()", "compact()", "compact_logs()", "run_services()", "set_lock('table')", "savepoint()",
                "change_settings(isolation='snapshot')", "restore('20260101000000000')", "rollback_failed_writes()",
                "pinned().__enter__()", "plans()", "savepoints()", "add_column('c', 'int64')", "__enter__()",
            )),
            "old_scan.to_arrow()",
            "old_scan.count()",
            "old_scan.to_batches().read_all()",
            *(f"over.{call}" for call in (
                "upsert(ROWS)", "delete(ROWS)", "delete_where('n=1')", "commit()", "new_file('p=x')", "overwrites(None)",
                "add_column('c', 'int64')", "check()", "file_spec(ROWS.schema)", "drop_file_groups([])",
            )),
            "unlogged.upsert(ROWS)",
            "unlogged.transaction()",
            "unlogged.clean()",
            "unlogged.why('20260101000000000')",
        ],
        "lakelatch.lock": [
            *each("lock(_, 'k').__enter__()", "5 '' None 'telepathy://x' 'redis://' 'zk://' b'memory://' []"),
            *each("lock('memory://calls', _).__enter__()", "5 '' None b'k' [] [5] [''] ['a','a'] {}"),
            *each("lock('memory://calls', 'k', wait_s=_).__enter__()", "-1 nan 'x' None []"),
            *each("lock('memory://calls', 'k', lease_s=_).__enter__()", "0 -1 nan 'x' [] inf"),
            *each("lock('memory://calls', 'k', token_above=_).__enter__()", "-1 1.5 'x' nan None"),
            *each("lock('memory://calls', 'k', max_hold_s=_).__enter__()", "0 -1 nan 'x'"),
            *each("lock('memory://calls', 'k', reason=_).__enter__()", "5 None b'x'"),
            *each("lock('memory://calls', 'k', on_lost=_).__enter__()", "5 'x'"),
            *each("lock('memory://calls', 'k', on_revoke=_).__enter__()", "5 'x'"),
            "lock('memory://calls?nonsense=1', 'k').__enter__()",
            "lock('memory://calls?lease=soon', 'k').__enter__()",
            *each("locks.acquire('k', wait_s=_)", "-1 nan 'x' None []"),
            *each("locks.try_acquire('k', lease_s=_)", "0 'x' []"),
            *each("locks.try_acquire('k', max_hold_s=_)", "0 'x' []"),
            *each("locks.try_acquire('k', reason=_)", "5 None"),
            *each("locks.try_acquire(_)", "5 '' None"),
            *each("locks.inspect(_)", "5 '' None"),
            *each("locks.break_lease('k', token=_, reason='x', who='y')", "'x' None 1.5"),
            *each("locks.break_lease('k', token=1, reason=_, who='y')", "5 None"),
            *each("locks.break_lease('k', token=1, reason='x', who=_)", "5 None"),
            *each("lock('memory://calls', 'k').ask_revoke(wait_s=_)", "-1 'x' None"),
            *each("lakelatch.locks.hudi.lock_url(_, table_name='t', base_path='/t')", "5 None"),
            *each("lakelatch.locks.open_provider(_)", "5 '' None 'x' 'telepathy://x' b'memory://' []"),
        ],
        "Spark, before a session is needed": [
            *each("spark_open(None, _)", "5 missing '' b'/tmp/t'"),
            *each("spark_open(_, url)", "None 5 'spark'"),
        ],
        "command line": [
            f"lakelatch {words}" for words in (
                "", "nope", "read", "read MISSING", "read T --columns nope", "read T --columns id,id", "read T --where ''",
                "read T --where 'nope = 1'", "read T --where 'n ='", "read T --partition nope", "read T --as-of yesterday",
                "read T --limit -1", "read T --limit x", "read T --format xml", "read T --format parquet",
                "read T -o rows.xml", "read T -o /no/such/folder/rows.csv", "read T --json -o rows.csv", "sql", "sql 'selec'",
                "sql 'select * from nope'", "sql 'select 1' --table T", "sql 'select nope from t' --table t=T",
                "sql 'select 1' --table t=MISSING", "upsert T MISSING.csv", "upsert T A_FILE", "upsert T - --format xml",
                "upsert T A_FILE --format csv", "upsert T A_FILE --format parquet", "upsert T A_FILE --format json",
                "upsert T A_FILE --format arrow", "upsert T -", "upsert MISSING A_FILE --format csv", "delete T A_FILE --format csv",
                "insert T A_FILE --format csv", "diff T yesterday 2026-01-01", "diff T 2026-01-02 2026-01-01",
                "diff T 2020-01-01 2020-01-02", "diff MISSING 1 2", "files T --as-of yesterday", "files T --partition nope",
                "why T yesterday", "why T 20200101000000000", "timeline T --limit 0", "settings T nonsense=1",
                "settings T isolation", "settings T isolation=perfect", "settings T lease_s=-1", "settings T =1",
                "create T --record-key id", "create NEW", "create NEW --record-key ''", "create NEW --record-key id --table-version 7",
                "create NEW --record-key id --schema MISSING", "create NEW --record-key id --bucket-count 0",
                "create NEW --record-key id --lock telepathy://x", "adopt T", "adopt MISSING", "check MISSING", "check A_FILE",
                "rollback T 20200101000000000", "rollback T x", "restore T 20200101000000000 --yes", "savepoint create T --at x",
                "services clean T --retain-commits -1", "services clean T --retain-hours -1", "services cluster T --partition nope",
                "services archive T --keep-min 0", "services execute T x", "services cancel T x", "locks show MISSING",
                "locks set T telepathy://x", "locks break T --token 7 --reason x", "locks break T", "locks show memory:// ''",
                "locks break memory:// k --yes", "locks break memory:// k", "locks wait telepathy://x k", "locks wait memory://",
                "locks wait memory:// k --wait-s -1", "upsert T ROWS --note x", "locks hold telepathy://x k -- true",
                "locks hold memory:// k", "locks hold memory:// '' -- true", "locks hold memory:// k --lease-s 0 -- true",
                "locks check telepathy://x", "locks check memory:// --processes 1", "watch T --after yesterday",
                "watch T --every-s 0", "doctor MISSING", "describe A_FILE",
            )
        ],
    }  # fmt: skip


class World:
    """The table that the calls go to, and the names that they use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}
        quiet = {"heartbeat_interval_s": 5000.0, "heartbeat_timeout_s": 20000.0}
        (root / "files").mkdir()
        (root / "files/notes.txt").write_text("what,is,this\n1,2,3\n")
        self.table = lakelatch.create(str(root / "t"), record_key="id", partition_by="p", writer="W", **quiet)
        self.table.upsert(ROWS)
        self.closed = lakelatch.open(str(root / "t"))
        old_scan = self.closed.read()
        self.closed.close()
        foreign = lakelatch.create(str(root / "foreign"), record_key="id", partition_by="p", **quiet)
        foreign.upsert(ROWS)
        foreign.close()
        import shutil

        shutil.rmtree(root / "foreign/.hoodie/.lakelatch")
        self.unlogged = lakelatch.open(str(root / "foreign"))
        kinds = {"id": pa.string(), "b": pa.float64(), "b_at": pa.float64(), "l": pa.list_(pa.int64())}
        columns = [
            (name, kinds.get(name, pa.int64()))
            for name in ("id", "a", "a_at", "b", "b_at", "c", "c_at", "l", "s", "s_at")
        ]
        self.wide = lakelatch.create(
            str(root / "wide"), record_key="id", schema=pa.schema(columns), type="merge_on_read", table_version=9, bucket_count=1,
            writer="W", **quiet,
        )  # fmt: skip
        one = self.wide.stream("one", columns=["a"], ordering="a_at", on_delete="row", default={"a": 0})
        two = self.wide.stream("two", columns=["b"], ordering="b_at")
        adds = self.wide.stream("adds", columns="s", ordering="s_at", merge={"s": "sum"}, foreign_readers=False)
        events = [{"id": "x", "a": 1, "a_at": 1}]
        one.upsert(events)
        over = self.table.transaction()
        over.abort()
        self.txn = self.table.transaction()
        (root / "t/.hoodie/.heartbeat").mkdir(exist_ok=True)
        self.names: dict[str, Any] = {
            "create": lakelatch.create, "open": lakelatch.open, "adopt": lakelatch.adopt, "lock": lakelatch.lock,
            "lakelatch": lakelatch, "t": self.table, "txn": self.txn, "closed": self.closed, "old_scan": old_scan, "over": over,
            "unlogged": self.unlogged, "url": str(root / "t"), "new": str(root / "new"), "missing": str(root / "missing"),
            "foreign": str(root / "foreign"), "a_file": str(root / "files/notes.txt"), "folder_with_files": str(root / "files"),
            "later": later, "one_by_one": one_by_one, "numpy": numpy, "pandas": pandas, "Decimal": Decimal,
            "locks": lakelatch.locks.open_provider("memory://calls"),
            "ROWS": ROWS, "pa": pa, "pc": pc, "datetime": datetime, "nan": float("nan"), "inf": float("inf"),
            "work": lambda txn: None, "spark_open": spark_open, "wide": self.wide, "one": one, "two": two, "adds": adds, "EVENTS": events,
        }  # fmt: skip

    def files(self) -> dict[str, str]:
        """Every file, with its content. One that was not touched since the last time is not read again."""
        found, folders = dict[str, tuple[tuple[int, ...], str]](), [str(self.root)]
        while folders:
            for entry in os.scandir(folders.pop()):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file():
                    stat, path = entry.stat(), os.path.relpath(entry.path, self.root)
                    state = stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
                    known = self._known.get(path)
                    if known is None or known[0] != state:
                        known = state, hashlib.md5(Path(entry.path).read_bytes()).hexdigest()
                    found[path] = known
        self._known = found
        return {path: digest for path, (_, digest) in found.items()}

    def tried(self, door: str, call: str) -> Raised:
        """What the call does."""
        before = self.files()
        kind, message, ours = self._shell(call) if door == "command line" else self._python(call)
        after = self.files()
        changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        # What only the snapshot can tell is found in a transaction: two entries of the log, its begin and its abort.
        begun = len(changed) == 2 and all("/.lakelatch/log/" in path and path not in before for path in changed)
        # The table's lock was taken and given back.
        begun |= len(changed) == 2 and changed[1] == f"{changed[0]}.released"
        shown = () if begun else tuple(map(self._plain, changed))
        return Raised(door, call, kind, self._plain(message), ours, shown, begun)

    def _python(self, call: str) -> tuple[str, str, bool]:
        try:
            value = eval(call, dict(self.names))
        except Exception as e:
            return type(e).__name__, str(e), isinstance(e, LakeLatchError)
        close: Callable[[], None] = getattr(value, "close", lambda: None)
        close()
        return "no error", repr(value), False

    def _shell(self, call: str) -> tuple[str, str, bool]:
        import shlex

        from lakelatch.cli.app import app

        places = {"T": "t", "MISSING": "missing", "NEW": "new", "A_FILE": "files/notes.txt"}
        words = []
        for word in shlex.split(call)[1:]:
            for name, place in places.items():
                word = re.sub(rf"(?<![\w-]){name}(?![\w-])", str(self.root / place), word)
            words.append(word)
        result = Runner().invoke(app, [*words], input="")
        told = [line for line in (result.stderr or result.stdout).splitlines() if line.strip()]
        text = " / ".join(line for line in told if not line.startswith(("Usage", "Try", "see docs/errors.md")))
        ours = result.exit_code in (2, 64) and (text.startswith("lakelatch: ") or "Usage" in (result.stderr or ""))
        return f"exit {result.exit_code}", text.strip("╭─╮│╯╰ "), ours

    def _plain(self, text: str) -> str:
        text = text.replace(str(self.root), "ROOT")
        text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
        text = re.sub(
            r"\b20\d{15}\b", lambda found: found[0] if found[0].startswith(("20200101", "20260101")) else "T", text
        )
        return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-0", "FILE_ID", text)

    def close(self) -> None:
        """End everything."""
        self.txn.abort()
        for each_table in (self.table, self.unlogged, self.wide):
            each_table.close()


async def later(txn: Any) -> None:
    """Work that would have to be awaited."""


def one_by_one(txn: Any) -> Iterator[None]:
    """Work that would have to be gone through."""
    yield


def spark_open(spark: Any, url: Any) -> Any:
    """`lakelatch.spark.open`, imported when it is first called."""
    import lakelatch.spark

    return lakelatch.spark.open(spark, url)


def all_tried(root: Path) -> Iterator[Raised]:
    """What each call does, in order."""
    number, world = 0, World(_made(root / "0"))
    try:
        for door, listed in calls().items():
            for call in listed:
                found = world.tried(door, call)
                yield found
                if found.written:  # which a test refuses; the calls after it are judged on a table that is whole
                    number += 1
                    with contextlib.suppress(Exception):
                        world.close()
                    world = World(_made(root / str(number)))
    finally:
        world.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def page(found: list[Raised]) -> str:
    """The table for people."""
    lines = [
        "# Bad calls",
        "",
        f"{len(found)} calls that cannot be right, what each raises, and its sentence. None writes a byte; † marks what is found",
        "under the lock or in a transaction, which leaves its begin and its abort in the log.",
        "Made by `python -m tests.bad_calls --write`; `tests/test_bad_calls.py` compares.",
    ]
    door = ""
    for one in found:
        if one.door != door:
            door = one.door
            lines += ["", f"## {door}", "", "| Call | Raises | Sentence |", "|---|---|---|"]
        lines.append("| " + " | ".join(map(_cell, (f"`{one.call}`", one.kind + " †" * one.begun, one.message))) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("|", "\\|")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = list(all_tried(Path(folder).resolve()))
    if "--write" in sys.argv:
        PAGE.write_text(page(results))
    for one in results:
        if not one.ours or one.written:
            print(f"{one.door}: {one.call}\n    {one.kind}: {one.message[:200]}\n    written: {list(one.written)[:4]}")
    print(len(results), sum(1 for one in results if not one.ours), sum(1 for one in results if one.written))
