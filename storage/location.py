"""Parse a table's URL into its canonical spelling.

A lock is taken on a name, so two spellings of one table would be two locks. `canonical` is that name; it holds no
secrets, which is why it is a name and not an address: a store on a non-standard endpoint is handed to another
process as a pickled `Store`, not as its `url`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from ..arguments import kind_of
from ..errors import ConfigError, InputError
from ..plain_text import has_odd_port, may_hold_password

__all__ = ["Location", "canonical", "check_path", "is_far", "may_hold_secret", "parse", "same_place"]

# The schemes of other engines for the same place. `abfs` and `abfss` differ only in TLS, which concerns the client.
_KINDS = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
}
_AZURE_HOST = re.compile(r"([a-z0-9]{3,24})\.(?:dfs|blob)\.core\.windows\.net", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_READABLE = "/=:@!$&'()*+,;~-._"  # left as they are in a canonical URL; all else is percent-encoded


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed URL.

    ``path`` is decoded and normal: absolute for files, without a leading slash for buckets.
    """

    kind: str
    bucket: str
    path: str
    account: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold keys: never shown

    def spelled(self, path: str) -> str:
        """Spell ``path`` below this scheme and bucket, not encoded, as Spark and Hadoop read it."""
        if self.kind == "file":
            return f"file://{path}"
        if self.account:
            return f"abfss://{self.bucket}@{self.account}.dfs.core.windows.net/{path}".rstrip("/")
        return f"{self.kind}://{self.bucket}/{path}".rstrip("/")

    @property
    def url(self) -> str:
        """The canonical URL."""
        return self.spelled(quote(os.fsencode(self.path), safe=_READABLE))


def parse(url: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Location:
    """Parse ``url``; ``options`` win over its query. Raises `InputError` for an invalid address."""
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InputError(f"{kind_of(url)} is not the address of a table; give a text, or a path of pathlib")
    match = _SCHEME.match(text) if isinstance(url, str) else None
    if may_hold_secret(text):
        raise InputError(
            "The address of the table may hold a password or a key, so it is not shown: it would be stored and printed. Give "
            "keys as options or through the environment (docs/storage.md), and a file URL three slashes and no host; a folder "
            "that is really called so has to be there already"
        )
    _refuse_other_encodings(text)
    if not text or _CONTROL.search(text):
        raise InputError(
            f"{_shown(text)!r} is not the address of a table; give a folder or a URL such as s3://bucket/table"
        )
    if text != text.strip():
        raise InputError(
            f"{_shown(text)!r} begins or ends with a blank, which hides in a path; remove it, or write it as %20 in a URL"
        )
    if match is None and text.startswith("~"):
        raise InputError(
            f"{text!r}: only a shell knows whose home ~ is; write the path out, or ./{text} for such a folder"
        )
    if match is None:
        # A plain path is taken literally: % and ? are letters.
        return _local(os.path.realpath(text), options or {})
    kind = _KINDS.get(match[1].lower())
    if kind is None:
        raise InputError(
            f"{match[1]}: is not a store that can be opened; known: {', '.join(_KINDS)}. "
            f"A folder of that name is ./{match[1]}:…"
        )
    address, _, query = text[match.end() :].partition("?")
    if "#" in query or "#" in address:
        raise InputError(f"{_shown(text)} has a '#'; write it as %23 in a URL")
    merged = _options(query, options or {}, _shown(text))
    if kind == "file":
        return _local(_file_path(address, _shown(text)), merged)
    return _bucket(kind, address, merged, _shown(text))


def canonical(url: str | os.PathLike[str]) -> str:
    """Return the canonical spelling: absolute, links resolved, no secrets.

    Raises as `parse` does.
    """
    return parse(url).url


def same_place(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> bool:
    """Return whether both are the same place, even where a mount gives one folder two paths."""
    one, two = parse(a), parse(b)
    if one.kind == two.kind == "file" and one.path != two.path:
        try:
            return os.path.samefile(one.path, two.path)
        except OSError:
            return False
    endpoints = {place.options["endpoint"].rstrip("/") for place in (one, two) if "endpoint" in place.options}
    return one.url == two.url and len(endpoints) < 2


def is_far(url: str) -> bool:
    """Return whether a request to the store at that canonical URL is slow, as everywhere but on a local disk."""
    return not url.startswith("file:")


def check_path(path: str, *, folder: bool = False) -> str:
    """Return ``path``. Raises `InputError` unless it is canonical and stays below the root."""
    if folder:
        path = path.rstrip("/")
        if not path:
            return path
    if not path or "\0" in path or path[0] == "/" or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise InputError(
            f"{path!r} is not a path below the table; give one without '..', '//' or a leading slash", path=path
        )
    return path


def may_hold_secret(text: str) -> bool:
    """Return whether a folder or the URL of a table or lock may hold a password, well-formed or not.

    The name of an existing folder is not a secret.
    """
    match = _SCHEME.match(text)
    kind = None if match is None else _KINDS.get(match[1].lower())
    head = text if match is None else text.partition("?")[0]
    folder = text if match is None else unquote(head[match.end() :]).removeprefix("//") if kind == "file" else ""
    a_host = match is None and text.startswith("//") and ":" in text[2:].partition("/")[0]
    suspect = may_hold_password(head) or a_host
    return suspect and not (folder.startswith(("/", ".")) and _is_there(folder))


def _refuse_other_encodings(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{_shown(text)!r} is no UTF-8, as the address of a table has to be: its lock would be another one elsewhere. Rename "
            "the folder"
        ) from None


def _is_there(path: str) -> bool:
    """Return whether a folder exists for the part of the path that looks like a secret."""
    end = path.find("/", max(path.rfind(each) for each in "@=:"))
    return os.path.lexists(path if end < 0 else path[:end])


def _local(path: str, options: Mapping[str, Any]) -> Location:
    _refuse_other_encodings(path)  # where links lead
    if options:
        raise ConfigError(f"A local folder has no options, but {', '.join(sorted(options))} was given")
    return Location("file", "", path)


def _file_path(address: str, shown: str) -> str:
    """Return the path of file:/a, file:///a and file://localhost/a."""
    if address.startswith("//"):
        host, slash, rest = address[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise InputError(f"{shown} names a host; a file URL has three slashes: file:///folder")
        address = slash + rest
    if not address.startswith("/"):
        raise InputError(f"{shown} is relative; a file URL has an absolute path: file:///folder")
    return os.path.realpath(_decoded(address, shown))


def _bucket(kind: str, address: str, options: dict[str, str], shown: str) -> Location:
    if not address.startswith("//"):
        raise InputError(f"{shown} names no bucket; write {kind}://bucket/table")
    if "@" in unquote(options.get("endpoint", "")):
        raise ConfigError(
            f"The endpoint of {shown} names a user or a password; leave it out: keys are options of their own"
        )
    authority, _, rest = address[2:].partition("/")
    bucket, at, host = authority.partition("@")
    account = ""
    if kind == "az":
        match = _AZURE_HOST.fullmatch(host)
        if at and match is None:
            raise InputError(
                f"{shown}: the host is not of the form account.dfs.core.windows.net; "
                "write az://container/table and give account_name and endpoint as options"
            )
        account = match[1] if match else options.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        account = account.lower()
    elif at:
        raise InputError(f"{shown} has an '@' before the first slash; keys are options or environment variables")
    if not bucket or ":" in bucket:
        raise InputError(f"{shown} names no bucket; write {kind}://bucket/table, and a port as the option endpoint")
    path = posixpath.normpath("/" + _decoded(rest, shown)).lstrip("/")
    if posixpath.normpath(_decoded(rest, shown).lstrip("/") or ".").split("/")[0] == "..":
        raise InputError(f"{shown} leads out of its bucket; remove the '..'")
    return Location(kind, bucket, path, account, options)


def _decoded(text: str, shown: str) -> str:
    """Undo percent-encoding. An encoded slash or control character would change what the path means and is refused."""
    try:
        decoded = unquote(text, errors="strict")
        decoded.encode()
    except UnicodeError:
        raise InputError(f"{shown} is no UTF-8 behind its percent signs, or before; name it by UTF-8") from None
    if _CONTROL.search(decoded) or decoded.count("/") != text.count("/"):
        raise InputError(f"{shown} encodes a slash or a control character; a table's address has neither")
    return decoded


def _options(query: str, options: Mapping[str, Any], shown: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    merged = {key.lower(): value for key, value in pairs}
    if len(merged) != len(pairs):
        raise ConfigError(f"{shown} gives an option twice; give each once")
    merged.update({key.lower(): str(value) for key, value in options.items()})
    return merged


def _shown(url: str) -> str:
    """Return the URL without possible secrets: its query, anything before an '@', and a host with a ':'."""
    head = re.split("[?#]", url, maxsplit=1)[0]
    if has_odd_port(head):
        return head.partition("//")[0] + "//…"
    return re.sub("//.*@", "//…@", head)  # a password may have a slash in it
