"""Values that engines spell, order or compare differently."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN = float("nan")
KEYS = [
    "plain",
    "ключ",
    "😀",
    "\U0010ffff",
    "\uffee",
    "é",
    "e\u0301",
    "x{y}",
    "}",
    "100%",
    "%41",
    "a/b",
    "a\\b",
    " lead",
]
KEYS += ["trail ", "q'uote", '"d"', "a,b:c", "_x", "null", "NaN", "-0.0", "A", "a" * 70]
TEXTS = [None, "", " ", "plain", "😀", "\U0010ffff", "\uffee", "{}", "%", "a/b", "a\\b", "it's", "null"]
FLOATS = [None, NAN, -0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf"), 5e-324, 1.7e308]
DECIMALS = [None, *map(Decimal, ("0.00", "-0.01", "1.50", "-99999999.99", "99999999.99"))]
DAYS = [None, *(dt.date(*day) for day in ((1, 1, 1), (1500, 2, 28), (1582, 10, 4), (1582, 10, 15), (1969, 12, 31)))]
DAYS += [dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
TIMES = [
    None,
    *(
        dt.datetime(*time, tzinfo=dt.UTC)
        for time in (
            (1500, 3, 1, 1, 2, 3, 4),
            (1883, 11, 18, 12),
            (1969, 12, 31, 23, 59, 59, 999_999),
            (1970, 1, 1),
            (2024, 10, 27, 1, 30),
            (9999, 12, 31, 23, 59, 59, 999_999),
        )
    ),
]
NUMBERS = [None, 0, 1, -1, 2, 7, 2**31, -(2**63), 2**63 - 1]

DATA = {
    "t": (pa.string(), TEXTS),
    "f": (pa.float64(), FLOATS),
    "m": (pa.decimal128(10, 2), DECIMALS),
    "d": (pa.date32(), DAYS),
    "at": (pa.timestamp("us", "UTC"), TIMES),
    "n": (pa.int64(), NUMBERS),
}
PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (
        pa.string(),
        [None, "", "plain", "😀", "x{y}", "{y}", "}", "100%", "a%2Fb", "a b", " lead", "a=b", "it's"],
    ),
    "number": (pa.int64(), [None, 0, -1, 7, 2**63 - 1]),
    "decimal": (pa.decimal128(10, 2), DECIMALS),
    "day": (pa.date32(), DAYS),
    "flag": (pa.bool_(), [None, True, False]),
}
