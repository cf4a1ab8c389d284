"""Column types by name: Spark's, as in its DDL, and Arrow's, as it prints them.

    bigint, decimal(12,2), array<string>, map<string, double>, struct<x: int, y: date>
    int64, decimal128(12, 2), list<element: string>, timestamp[us, tz=UTC]

A timestamp has a zone, as Spark's does; ``timestamp_ntz`` and Arrow's ``timestamp[us]`` have none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# Names that only Spark has, and Arrow's name for each.
_OF_SPARK = {
    "boolean": "bool",
    "byte": "int8",
    "tinyint": "int8",
    "short": "int16",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "long": "int64",
    "bigint": "int64",
    "real": "float32",
    "date": "date32",
    "timestamp_ntz": "timestamp[us]",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric|decimal128)(?:\(([0-9]+)(?:,(-?[0-9]+))?\))?")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),tz=([^]]+)\]", re.IGNORECASE)
_TOKEN = re.compile(r"\s*([<>,:]|[A-Za-z0-9_]+(?:\([^()]*\)|\[[^][]*\])?|`[^`]*`)")
_DEPTH_MAX = 32
KNOWN = (
    "boolean, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp, array<...>, map<string, ...>, "
    "struct<name: ..., ...>, and what Arrow calls them, as int64 or list<string>"
)


def type_of(text: str) -> pa.DataType:
    """Return the type with this name.

    Raises:
        InputError: no type has it; the message lists the known ones.
    """
    return _Reader(text).whole()


def schema_of(text: str) -> pa.Schema:
    """Return the columns that a text declares, as ``id string not null, amount decimal(12,2), at timestamp``.

    Raises:
        InputError: it declares none so.
    """
    try:
        return _Reader(text).columns()
    except InputError as e:
        raise InputError(
            f"schema={text!r:.200} declares no columns; write each as a name and a type, separated by commas, as "
            f"'id string, amount decimal(12,2), at timestamp'; types are {KNOWN}"
        ) from e


class _Reader:
    """One pass over the name of a type, or over columns with their types."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, end = text, list[str](), 0
        rest = text.strip()
        while end < len(rest):
            if (found := _TOKEN.match(rest, end)) is None:
                raise self._unknown()
            self._tokens.append(found[1])
            end = found.end()
        self._at = 0

    def whole(self) -> pa.DataType:
        kind = self._type(0)
        if self._at < len(self._tokens):
            raise self._unknown()
        return kind

    def columns(self) -> pa.Schema:
        import pyarrow as pa

        found, more = list[pa.Field](), True
        while more:
            name = self._next().strip("`")
            if self._peek() == ":":
                self._next()
            kind = self._nullable(0)
            required = [each.lower() for each in self._tokens[self._at : self._at + 2]] == ["not", "null"]
            self._at += 2 * required
            found.append(pa.field(name, kind, nullable=not required))
            if more := self._at < len(self._tokens):
                self._expect(",")
        return pa.schema(found)

    def _type(self, depth: int) -> pa.DataType:
        kind = self._nullable(depth)
        if [each.lower() for each in self._tokens[self._at : self._at + 2]] == ["not", "null"]:
            raise InputError(
                f"type {self._text!r}: a column that is added later has no value in the rows that are there, so nothing in it is "
                "declared not null; leave that out",
                type=self._text,
            )
        return kind

    def _nullable(self, depth: int) -> pa.DataType:
        import pyarrow as pa

        token = self._next()
        word = token.lower()
        if depth > _DEPTH_MAX:
            raise self._unknown()
        if self._peek() != "<":
            return self._plain(re.sub(r"\s", "", token))
        self._next()
        match word:
            case "array" | "list" | "large_list":
                kind = pa.list_(pa.field("element", self._named(depth)))
            case "map":
                key = self._named(depth)
                self._expect(",")
                kind = pa.map_(key, self._named(depth))
            case "struct":
                kind = pa.struct(self._fields(depth))
            case _:
                raise self._unknown()
        self._expect(">")
        return kind

    def _named(self, depth: int) -> pa.DataType:
        """Read the type of an element; Arrow writes a field name before it."""
        if self._tokens[self._at + 1 : self._at + 2] == [":"]:
            self._at += 2
        return self._type(depth + 1)

    def _fields(self, depth: int) -> list[pa.Field]:
        import pyarrow as pa

        found = []
        while True:
            name = self._next().strip("`")
            if self._peek() == ":":
                self._next()
            found.append(pa.field(name, self._type(depth + 1)))
            if self._peek() != ",":
                return found
            self._next()

    def _plain(self, token: str) -> pa.DataType:
        import pyarrow as pa

        word = token.lower()
        if found := _DECIMAL.fullmatch(word):
            digits, scale = int(found[1] or 10), int(found[2] or 0)  # 10 and 0 are Spark's own
            if not 1 <= digits <= 38 or not 0 <= scale <= digits:
                raise InputError(
                    f"type {self._text!r}: a decimal has 1 to 38 digits, and as many of them or fewer after the point",
                    type=self._text,
                )
            return pa.decimal128(digits, scale)
        if word in ("timestamp", "timestamp_ltz"):
            return pa.timestamp("us", "UTC")
        if found := _ZONED.fullmatch(token):  # the names of zones have capitals
            return pa.timestamp(found[1].lower(), found[2])
        try:
            return pa.type_for_alias(_OF_SPARK.get(word, word))
        except ValueError:
            raise self._unknown() from None

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        if not (token := self._peek()):
            raise self._unknown()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._unknown()

    def _unknown(self) -> InputError:
        return InputError(f"no type of a column is called {self._text!r}; known: {KNOWN}", type=self._text)
