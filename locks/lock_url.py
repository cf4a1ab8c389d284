"""Parse lock URLs, ``scheme://place?lease=30s&max_hold=10m&key=flights``., and normalise lock keys.

``key`` fixes the lock's name whatever key a caller asks for. It is for locks shared with writers
that derive the name differently, such as the JVM's. A URL never holds a secret, because it is
stored with the table and printed.

An argument of the call wins over the URL, and the URL over the default. Unknown query keys are
errors: with a mistyped ``laese=5s``, writers would disagree about when a lock ends.

A key that is a table's address is spelled as in storage/location.py: two writers that spell one table differently
would otherwise hold two locks. Any other key is a name: only its Unicode form and surrounding blanks are normalised. Two
names that Unicode considers equal share a lock, which costs a wait but never a commit.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from ..arguments import number
from ..errors import ConfigError, InputError
from ..plain_text import has_odd_port, may_hold_password, visible
from ..storage import location, may_hold_secret

LEASE_S = 30.0
LEASE_S_MIN = 0.05  # below this a busy machine loses leases that no other process took
LEASE_S_MAX = 24 * 3600.0
_WITHOUT_USER = ("file", "memory", "zk", "dynamodb", "s3", "gs")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
# An absolute path or the scheme of a store is an address; anything else is a name.
_ADDRESS = re.compile(r"/|(?:file|s3|s3a|s3n|gs|gcs|az|azure|abfs|abfss):/", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LockUrl:
    """A parsed lock URL. ``host`` and ``path`` are decoded; ``options`` holds the backend's own query keys."""

    scheme: str
    host: str
    path: str
    lease_s: float = LEASE_S
    max_hold_s: float | None = None
    key: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the canonical text: defaults are left out, keys are sorted."""
        query = dict(self.options)
        if self.lease_s != LEASE_S:
            query["lease"] = format_duration(self.lease_s)
        if self.key:
            query["key"] = self.key
        if self.max_hold_s is not None:
            query["max_hold"] = format_duration(self.max_hold_s)
        tail = "&".join(f"{quote(key)}={quote(query[key], safe='/:,')}" for key in sorted(query))
        return f"{self.scheme}://{self.host}{quote(self.path)}" + (f"?{tail}" if tail else "")


def parse_lock_url(url: str, *, options: tuple[str, ...] = (), lease_s: float = LEASE_S) -> LockUrl:
    """Parse a lock URL. ``options`` names the backend's own query keys; ``lease_s`` counts where the URL has no ``lease``."""
    if is_path(url):
        check_path(url)
        if "?" in url:
            path = url.partition("?")[0]
            raise ConfigError(f"{path!r} is a bare path with settings; write file:///path?lease=10s instead", url=path)
        return LockUrl("file", "", url, lease_s)
    parts = split(url)
    # Below, only the part before the query is shown: the rest may be a secret, or the second half of one.
    if parts.fragment:
        raise ConfigError(f"A lock URL of {parts.scheme}:// has a part after '#', which means nothing here; remove it")
    place = url.partition("?")[0]
    query: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key in query:
            raise ConfigError(f"The lock URL {place!r} gives {key!r} twice; keep one", url=place, key=key)
        query[key] = value
    lease = query.pop("lease", None)
    max_hold = query.pop("max_hold", None)
    fixed_key = query.pop("key", "")
    unknown = sorted(set(query) - set(options))
    if unknown:
        known = ", ".join(sorted({"lease", "max_hold", "key", *options}))
        raise ConfigError(
            f"The lock URL {place!r} has unknown settings: {', '.join(_named(each) for each in unknown)}; known are {known}",
            url=place,
            unknown=[_named(each) for each in unknown],
        )
    return LockUrl(
        parts.scheme,
        parts.netloc,
        _decoded(parts.path, parts.scheme),
        lease_s if lease is None else check_lease(parse_duration(lease, what="lease")),
        None if max_hold is None else check_max_hold(parse_duration(max_hold, what="max_hold")),
        fixed_key,
        query,
    )


def _decoded(path: str, scheme: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise ConfigError(
            f"The lock URL of {scheme}:// is no UTF-8 behind its percent signs; name it by UTF-8"
        ) from None


def is_path(url: str) -> bool:
    """Return whether ``url`` is a folder without a scheme."""
    return url in (".", "..") or url.startswith(("/", "./", "../"))


def check_path(path: str) -> None:
    """Raise `ConfigError` for a folder whose name may hold a password or is not UTF-8. The error hides the name."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"The folder for locks {path!r} has a name that is no UTF-8; rename it") from None
    if may_hold_secret(path):
        raise ConfigError(
            "The folder for locks may hold a password in its name, so it is not shown; lock URLs are stored and printed. Name "
            "one that is there already, or has no ':' before an '@'"
        )


def split(url: str) -> SplitResult:
    """Split a lock URL.

    Raises `ConfigError` when it may hold a password; the error never shows it.
    """
    try:
        url.encode()
        if has_odd_port(url):
            raise ValueError
        parts = urlsplit(url)
    except ValueError:  # its message shows the host's part
        scheme = url.partition("://")[0]
        raise ConfigError(
            f"The host in the lock URL of {visible(scheme)}:// cannot be read: it is UTF-8, behind a ':' stands a port, and an "
            "address of IPv6 is written [::1]"
        ) from None
    # A password may have a / ? or # in it, which ends the host's part: the '@' then comes later.
    user = unquote(parts.netloc.rpartition("@")[0])
    if (
        ":" in user
        or may_hold_secret(url)
        or ("@" in parts.netloc and parts.scheme in _WITHOUT_USER)
        or (":" in parts.netloc and "@" in url.partition(parts.netloc)[2])
        or any(
            "@" in name or ":" in name or _holds_user(name, value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        )
    ):
        raise ConfigError(
            f"The lock URL of {parts.scheme}:// holds a password (or an '@' in a name, to be written %40). Lock URLs are "
            "stored and printed, so leave it out and give it through the environment (docs/locks.md names the variable of "
            "each backend)"
        )
    return parts


def _named(setting: str) -> str:
    """Return a setting's name for a message. Text that cannot be a name is hidden: it may be half of a secret."""
    return setting if re.fullmatch("[A-Za-z][A-Za-z0-9_-]{0,40}", setting) else "(one that is not shown)"


def _holds_user(option: str, value: str) -> bool:
    """Return whether an address in the query names a user, such as ``endpoint=http://user:password@proxy``."""
    value = unquote(value)
    if option == "key":  # a table's address, and az has an @ in it
        return re.search(r"//[^/?#@]*:[^@]*@", value) is not None
    return "@" in value and (option == "endpoint" or "//" in value)


def shown(url: str) -> str:
    """Return ``url`` without secrets. An old table may store a URL with a password."""
    try:
        split(url)
    except ConfigError:
        scheme = re.match("[A-Za-z][A-Za-z0-9+.-]*(?=://)", url)
        return f"{scheme[0] if scheme else ''}://... (with a password, or unreadable)"
    return url


def parse_duration(text: str, *, what: str) -> float:
    """Return the seconds of ``500ms``, ``30s``, ``2m`` or ``1.5h``."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text.strip())
    if match is None:
        raise ConfigError(f"{what}={text!r} is not a duration; write a number with its unit, such as 500ms, 30s or 2m")
    return float(match[1]) * _UNITS_S[match[2]]


def format_duration(seconds: float) -> str:
    """Return the shortest text that `parse_duration` reads back as the same number."""
    for unit in ("h", "m", "s"):
        if seconds >= _UNITS_S[unit] and (seconds / _UNITS_S[unit]).is_integer():
            return f"{int(seconds / _UNITS_S[unit])}{unit}"
    return f"{seconds * 1000:.6f}".rstrip("0").rstrip(".") + "ms"


def check_lease(lease_s: float) -> float:
    """Return ``lease_s``. Raises `ConfigError` when it is no number, too short or too long."""
    number(lease_s, "lease_s", error=ConfigError)
    if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
        raise ConfigError(
            f"A lease of {lease_s:g} s cannot work; choose between {LEASE_S_MIN:g} s and {LEASE_S_MAX:g} s",
            lease_s=lease_s,
        )
    return lease_s


def check_max_hold(max_hold_s: float) -> float:
    """Return ``max_hold_s``. Raises `ConfigError` unless it is a positive number."""
    number(max_hold_s, "max_hold_s", error=ConfigError)
    if not max_hold_s > 0:
        raise ConfigError(f"max_hold must be longer than nothing, not {max_hold_s:g} s", max_hold_s=max_hold_s)
    return max_hold_s


def check_readable(paths: Iterable[str]) -> None:
    """Raise `ConfigError` when this process cannot read a file named in a lock URL."""
    for path in paths:
        if not os.access(path, os.R_OK):
            raise ConfigError(
                f"The file {path!r}, which the lock URL names, cannot be read here. Nothing is held; every machine that "
                "takes the lock needs it",
                path=path,
            )


def normal_key(key: str) -> str:
    """Return the canonical spelling of ``key``.

    Raises `InputError` for an address that cannot be a table's.
    """
    key = key.lstrip()
    _refuse_unstorable(key)
    if not _ADDRESS.match(key):
        return unicodedata.normalize(
            "NFC", key.rstrip()
        )  # an address keeps its end: a folder's name may end in a space
    place = location.parse(key)
    return replace(place, path=unicodedata.normalize("NFC", place.path)).url


def _refuse_unstorable(key: str) -> None:
    """Raise `InputError` for a key that is not UTF-8, or a URL that may hold a password: keys become file names."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InputError(f"the key {key!r} of a lock is no UTF-8 text, and would be another key elsewhere") from None
    if "//" in key and (may_hold_secret(key) or (may_hold_password(key) and not _ADDRESS.match(key))):
        raise InputError(
            "the key of a lock may hold a password, so it is not shown: keys are stored and printed. The lock's URL comes "
            "first, its key second"
        )
