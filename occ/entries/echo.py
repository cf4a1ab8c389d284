"""The echo: a commit's schema, repeated under the largest T if a commit before it has a larger T.

    t=0  A (T=10) begins; B (T=20) begins and commits with the columns of then
    t=1  A commits with a new column
    t=2  Hudi's readers take the schema of the commit with the largest T, which is B's: A's column is not there

So A's log entry names a second instant, empty except for the schema, with a T of its own. One entry, hence both or
neither are committed. The echo completes before A does: its column may be seen for a moment without A's rows, never the
other way round, and a restore to A's state keeps it.

Source: the readers of Apache Hudi 1.2.0 (`TableSchemaResolver`) and hudi-rs 0.5, tried
(tests/occ/transaction/test_columns.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...hudi.timeline import COMMIT_ACTIONS, CommitMetadata, encode_commit
from .entries import Commit, next_echo


def echo_of(instant: str, schema: str | None, later: Sequence[Commit], now_s: float, top: str) -> tuple[str, str]:
    """Return the name of the echo that a commit needs, or "", and the largest time from here on.

    Args:
        instant: T of the commit; ``schema`` is the one that it leaves.
        later: the commits since it began. Everything before has a smaller T.
        top: the largest time so far.
    """
    under, seen = max(((c.schema_under, c.schema) for c in later if c.action in COMMIT_ACTIONS), default=("", None))
    if not schema or under < instant or seen == schema:
        return "", top
    return next_echo(now_s, top)


def echo(schema: str | None) -> CommitMetadata:
    """The metadata of an echo."""
    # An operation that may change columns, because the JVM skips the schemas of compactions and clusterings.
    return CommitMetadata(operation="INSERT", schema=schema)


def echo_body(schema: str | None) -> bytes:
    """The completed instant of an echo."""
    return encode_commit(echo(schema), replace=False)
