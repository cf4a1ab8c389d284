"""Times as people give them become instants."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelatch
from lakelatch.hudi.timeline.instant import from_epoch_ms, to_epoch_ms
from lakelatch.hudi.timeline.times import time_of

NO_TIMES = [
    "yesterday",
    "abc",
    "",
    " ",
    "2026",
    "20261124",
    "2026-13-01",
    "2026-11-24T25:00",
    "0" * 17,
    "9" * 14,
    5,
    True,
]
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("20261124093000123", "20261124093000123"),
        ("20261124093000", "20261124093000000"),
        ("2026-11-24", "20261124000000000"),
        ("2026-11-24T09:30", "20261124093000000"),
        ("2026-11-24 09:30:15.5", "20261124093015500"),
        ("2026-11-24T09:30:00Z", "20261124093000000"),
        ("2026-11-24T01:30:00.123999+02:00", "20261123233000123"),
        (datetime(2026, 11, 24, 9, 30), "20261124093000000"),
        (datetime(2026, 11, 24, 1, 30, tzinfo=EAST), "20261123233000000"),
        (date(2026, 11, 24), "20261124000000000"),
    ],
)
def test_a_time_is_read_in_every_form_that_is_told(given, text):
    assert time_of(given, "as_of") == text


@pytest.mark.parametrize(
    "value", [*NO_TIMES, None, b"20261124093000123", 1.5, [], datetime.max.replace(tzinfo=EAST).time()]
)
def test_anything_else_is_refused_with_the_forms(value):
    with pytest.raises(lakelatch.InputError, match=r"as_of is .*20261124093000123.*2026-11-24.*UTC"):
        time_of(value, "as_of")


@given(st.datetimes(timezones=st.sampled_from([UTC, EAST]), min_value=datetime(1, 1, 2)))
def test_an_instant_its_time_and_its_text_are_one(moment):
    instant = time_of(moment, "as_of")
    assert (
        time_of(moment.isoformat(), "as_of")
        == time_of(instant, "as_of")
        == instant
        == from_epoch_ms(to_epoch_ms(instant))
    )
