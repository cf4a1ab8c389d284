"""The endpoints of the server with their parameters; `described` returns them as OpenAPI.

An undeclared parameter is refused, and so is a repeated one: a misspelled parameter must not be ignored silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qsl

from ..errors import InputError
from .watched import Watched

Values = Mapping[str, Any]
_NUMBER = re.compile(r"-?[0-9]{1,16}", re.ASCII)
_ERROR = {"$ref": "#/components/schemas/Error"}
_MS = 4_102_444_800_000  # the year 2100
_TEXT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query; a number if it has bounds, else a text."""

    name: str
    means: str
    least: int | None = None
    most: int | None = None
    default: int | str | None = None
    pattern: str = ""

    def value(self, given: str) -> int | str:
        """Return the parsed value. Raises `InputError` if it is invalid."""
        if self.least is None or self.most is None:
            if len(given) > _TEXT_MAX or (self.pattern and not re.fullmatch(self.pattern, given, re.ASCII)):
                raise InputError(f"{self.name} is {given[:60]!r}; give {self.means}")
            return given
        if not _NUMBER.fullmatch(given) or not self.least <= int(given) <= self.most:
            raise InputError(f"{self.name} is {given[:60]!r}; give a whole number from {self.least} to {self.most}")
        return int(given)

    def schema(self) -> dict[str, Any]:
        """Return it as JSON schema."""
        if self.least is not None:
            shape: dict[str, Any] = {"type": "integer", "minimum": self.least, "maximum": self.most}
        else:
            shape = {"type": "string", "maxLength": _TEXT_MAX} | (
                {"pattern": f"^(?:{self.pattern})$"} if self.pattern else {}
            )
        return shape | ({} if self.default is None else {"default": self.default})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One question about a table; ``call`` answers it, on a thread of its own.

    Attributes:
        path: below ``/api/v1/tables/{table}``.
        holds: the fields of the answer, for the description.
    """

    path: str
    means: str
    call: Callable[[Watched, Values], dict[str, Any]]
    parameters: tuple[Parameter, ...] = ()
    holds: tuple[str, ...] = ()

    @property
    def instant(self) -> bool:
        """True if the path names an instant."""
        return "{instant}" in self.path


INSTANT = "[0-9]{14}|[0-9]{17}"
_LIMIT = Parameter("limit", "how many", 1, 1000, 100)
_BEFORE = Parameter("before", "a requested time (T): only older ones", pattern=INSTANT)

_STRETCH = (
    Parameter("since_ms", "the beginning, in milliseconds since 1970; 0 is the first that is known", 0, _MS),
    Parameter("until_ms", "the end, in milliseconds since 1970; now by itself", 0, _MS),
    Parameter("lanes", "how many lanes", 1, 200, 40),
    Parameter("skip", "leave out so many of the first lanes", 0, 1_000_000, 0),
    Parameter("writer", "a part of the writers' names"),
)
IN_PATH = Parameter("instant", "a requested time, 17 digits", pattern=INSTANT)

ENDPOINTS = (
    Endpoint(
        "",
        "What the table is: numbers, properties and settings",
        lambda table, _: {
            "summary": table.summary(), "properties": table.table.config.to_json(), "settings": table.settings(),
        },
        holds=("summary", "properties", "settings"),
    ),
    Endpoint(
        "/timeline",
        "The newest transactions and services, newest first",
        lambda table, q: table.timeline(limit=q["limit"], before=q["before"] or ""),
        (_LIMIT, _BEFORE),
        ("instants", "before"),
    ),
    Endpoint(
        "/state",
        "All that the dashboard shows, as of one moment: what /lanes, /lock, /open, /services and /timeline tell",
        lambda table, q: table.state(**{**q, "writer": q["writer"] or ""}),
        (*_STRETCH, Parameter("newest", "how many of the newest transactions", 1, 1000, 50)),
        ("summary", "lock", "lanes", "open", "services", "newest"),
    ),
    Endpoint(
        "/lanes",
        "A stretch of time as lanes, one a writer, with no more detail than fits a picture",
        lambda table, q: table.lanes(**{**q, "writer": q["writer"] or ""}),
        _STRETCH,
        ("since_ms", "until_ms", "now_ms", "lanes", "lanes_total", "arrows", "overview", "total"),
    ),
    Endpoint(
        "/files",
        "The file slices that readers see now",
        lambda table, q: table.files(partition=q["partition"], limit=q["limit"], after=q["after"] or ""),
        (
            Parameter("partition", "a partition's path"),
            _LIMIT,
            Parameter("after", "the `after` of the answer before"),
        ),
        ("slices", "after"),
    ),
    Endpoint(
        "/sizes", "Partitions with file groups and bytes; active timeline and archive", lambda table, _: table.sizes(),
        holds=("partitions", "file_groups", "log_files", "bytes", "largest", "timeline"),
    ),
    Endpoint(
        "/lock", "Who holds the table's lock, and who waits for it", lambda table, _: table.lock(),
        holds=("lock", "generation", "last_token", "holder", "queue"),
    ),
    Endpoint(
        "/open", "Open transactions: signs of life, reservations, and behind whom each waits",
        lambda table, _: {"open": table.open()}, holds=("open",),
    ),
    Endpoint(
        "/reservations", "What open transactions have reserved, in the order in which they go",
        lambda table, _: {"reservations": [each for each in table.open() if each["reserved"] or each["behind"]]},
        holds=("reservations",),
    ),
    Endpoint(
        "/services", "Plans of table services, and readers' leases", lambda table, _: table.services(),
        holds=("plans", "readers"),
    ),
    Endpoint(
        "/why/{instant}", "What became of a transaction and why, as `lakelatch why T --json` tells it",
        lambda table, q: table.why(q["instant"]), holds=("instant", "outcome", "winner", "rule", "overlap", "ways"),
    ),
    Endpoint(
        "/markers/{instant}", "The data files that a transaction has announced, no matter who took its markers",
        lambda table, q: table.markers(q["instant"], limit=q["limit"]), (_LIMIT,), holds=("markers", "total"),
    ),
)  # fmt: skip


def values(query: bytes, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the parameters of a query, with their defaults. Raises `InputError` that names the mistake."""
    known = {each.name: each for each in parameters}
    found: dict[str, Any] = {each.name: each.default for each in parameters}
    try:
        given = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise InputError("the query is no UTF-8 in percent signs, or has more than 50 parameters; correct it") from None
    names = [name for name, _ in given]
    for name, text in given:
        if name not in known:
            raise InputError(f"there is no parameter {name[:60]!r} here; there are {', '.join(known) or 'none'}")
        # Programs disagree on which of two values counts.
        if names.count(name) > 1:
            raise InputError(f"{name} is given {names.count(name)} times; give it once")
        found[name] = known[name].value(text)
    return found


_MARKERS_MAX = 10_000
_ANNOUNCED = {
    "type": "object",
    "required": ["markers"],
    "additionalProperties": False,
    "properties": {
        "markers": {"type": "array", "items": {"type": "string", "maxLength": _TEXT_MAX}, "maxItems": _MARKERS_MAX}
    },
}


def announced_in(body: bytes) -> list[str]:
    """Return the marker names in a request's body. Raises `InputError` for any other body."""
    try:
        found = json.loads(body)
        names = found["markers"]
        right = set(found) == {"markers"} and isinstance(names, list) and len(names) <= _MARKERS_MAX
    except (ValueError, TypeError, KeyError, RecursionError):
        right = False
    if not right or not all(isinstance(each, str) and len(each) <= _TEXT_MAX for each in names):
        raise InputError(
            f'the body is no {{"markers": [...]}} with at most {_MARKERS_MAX:,} names of {_TEXT_MAX} characters; '
            "see /openapi.json"
        )
    return list(names)


_OPAQUE = "application/octet-stream"  # messages of `occ.coordination`, between one version of the library and itself


def described(tables: Sequence[str]) -> dict[str, Any]:
    """Return the API as an OpenAPI document."""
    paths: dict[str, Any] = {
        "/healthz": _path("Whether the server runs; needs no token", ("status",), free=True),
        "/api/v1/tables": _path("The tables that this server watches", ("tables",)),
    }
    for each in ENDPOINTS:
        parameters: list[dict[str, Any]] = [_in_path("table", {"type": "string", "enum": list(tables)})]
        if each.instant:
            parameters.append(_in_path("instant", {"type": "string", "pattern": f"^(?:{INSTANT})$"}))
        parameters += [
            {"name": p.name, "in": "query", "required": False, "description": p.means, "schema": p.schema()}
            for p in each.parameters
        ]
        paths[f"/api/v1/tables/{{table}}{each.path}"] = _path(each.means, each.holds, parameters=parameters)
    paths["/api/v1/tables/{table}/markers/{instant}"] |= {
        "post": {
            "summary": "Announce the data files of a task: answered when their markers stand, with the list of each",
            "parameters": paths["/api/v1/tables/{table}/markers/{instant}"]["get"]["parameters"][:2],
            "requestBody": {"required": True, "content": {"application/json": {"schema": _ANNOUNCED}}},
            "responses": {
                "200": _response("The lists", {"type": "object", "required": ["lists"]}),
                "503": _response("Too busy, or stopping: ask again later, or put the markers directly", _ERROR),
                "default": _response("An error as a sentence", _ERROR),
            },
        }
    }
    paths["/api/v1/tables/{table}/transactions"] = {
        "post": {
            "summary": "Ask the coordinator to begin or to commit a transaction; its writer goes on by itself without an answer",
            "parameters": [_in_path("table", {"type": "string", "enum": list(tables)})],
            "requestBody": {"required": True, "content": {_OPAQUE: {"schema": {"type": "string", "format": "binary"}}}},
            "responses": {
                "200": {
                    "description": "The log's entries from the slot asked for, behind line feeds that tell that it lives; "
                    "nothing but these: begin or commit by yourself",
                    "content": {_OPAQUE: {"schema": {"type": "string", "format": "binary"}}},
                },
                "503": _response("No coordinator, or stopping: begin and commit by yourself", _ERROR),
                "default": _response("An error as a sentence", _ERROR),
            },
        }
    }
    error = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "LakeLatch server", "version": version("lakelatch"), "description": "Who does what, and why"},
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": error},
        },
    }  # fmt: skip


def _in_path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _path(
    means: str, holds: Sequence[str], *, parameters: Sequence[dict[str, Any]] = (), free: bool = False
) -> dict[str, Any]:
    shape = {"type": "object", "required": list(holds)}
    answers = {"200": _response(means, shape), "default": _response("An error as a sentence", _ERROR)}
    question = {"summary": means, "parameters": list(parameters), "responses": answers}
    return {"get": question | ({"security": []} if free else {})}


def _response(means: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": means, "content": {"application/json": {"schema": schema}}}
