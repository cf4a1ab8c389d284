"""The archived timeline: instants that have left the active one, at the path and in the form that JVM Hudi uses.

    .hoodie/timeline/history/<first T>_<last T>_<level>.parquet   rows: T, C, action, the instant's content, its plan
    .hoodie/timeline/history/manifest_<n>                         JSON: the files that count, with their lengths
    .hoodie/timeline/history/_version_                            the n in force; written last

An instant is put here before it leaves the active timeline. One that is in both places is archived, and its active file is
about to go. After a crash of another engine an instant may be here twice, with the same content.

Source: Apache Hudi 1.x, `HoodieLSMTimelineInstant`; files that Hudi 1.2.0 wrote.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import CorruptTableError, StorageError
from ...storage import Outcome, put_secured
from .commit_metadata import CommitMetadata, decode_commit
from .instant import ACTIONS, COMMIT_ACTIONS, Instant, file_name, is_time

if TYPE_CHECKING:
    from ...storage import Store


_NUMBER = re.compile("[0-9]{1,18}")
_FILE = re.compile(r"([0-9]{1,18})_([0-9]{1,18})_([0-9]{1,18})\.parquet")
_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.-]*")
_TRIES = 20
_TEXTS = ("instantTime", "completionTime", "action")
_FILES_KEPT = 256  # whose names are remembered
_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "HoodieLSMTimelineInstant",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            *({"name": each, "type": ["null", "string"], "default": None} for each in _TEXTS),
            *({"name": each, "type": ["null", "bytes"], "default": None} for each in ("metadata", "plan")),
            {"name": "version", "type": "int", "default": 1},
        ],
    }
)


@dataclass(frozen=True, slots=True)
class Archived:
    """A completed instant with its content, and its plan's content if it had a plan."""

    instant: Instant
    content: bytes
    plan: bytes | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The version (0: no manifest) and the files that count: name -> length, oldest first."""

    version: int = 0
    files: tuple[tuple[str, int], ...] = ()

    def reaching(self, first: str, last: str) -> list[str]:
        """Return the files that may hold an instant with T from ``first`` to ``last``."""
        spans = ((name, _FILE.fullmatch(name)) for name, _ in self.files)
        return [name for name, span in spans if span is None or (span[1] <= last and span[2] >= first)]


class History:
    """The archived timeline of one table. It caches what it reads, since files never change."""

    def __init__(self, store: Store, timeline_folder: str) -> None:
        self._store, self.folder = store, f"{timeline_folder}/history"
        self._read: dict[str, dict[str, Instant]] = {}

    # --- reading ---------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest:
        """Return the manifest in force. Raises `CorruptTableError` if it is missing or torn."""
        stored = self._store.get(f"{self.folder}/_version_")
        # The JVM deletes `_version_` before it writes the next one, and may die in between.
        version = self._largest() if stored is None else stored.body.decode(errors="replace")
        if not version:
            return Manifest()
        if not _NUMBER.fullmatch(version):
            raise self._damaged("_version_", "holds no number")
        name = f"manifest_{version}"
        stored = self._store.get(f"{self.folder}/{name}")
        if stored is None:
            raise self._damaged(name, "is in force and not there")
        try:
            files = tuple((_plain(each["fileName"]), int(each["fileLen"])) for each in json.loads(stored.body)["files"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as e:
            raise self._damaged(name, "is torn") from e
        return Manifest(int(version), files)

    def _largest(self) -> str:
        names = self._store.names(self.folder)
        found = [n for name in names if (n := name.removeprefix("manifest_")) != name and _NUMBER.fullmatch(n)]
        return max(found, key=int, default="")

    def begun(self) -> bool:
        """Return whether anything has been archived. One request, so it can be asked often."""
        return self._store.head(f"{self.folder}/_version_") is not None

    def instants(self, *, first: str = "", last: str = "9") -> dict[str, Instant]:
        """Return archived instants by their names on the active timeline; at least the ones with T from ``first`` to
        ``last``.
        """
        found: dict[str, Instant] = {}
        for name in self.manifest().reaching(first, last):
            found |= self._names(name)
        return found

    def completion_of(self, requested: str) -> str | None:
        """Return C of an archived transaction; None for any other."""
        found = self.instants(first=requested, last=requested).values()
        return next((each.completed for each in found if each.requested == requested), None)

    def newest_completion(self) -> str:
        """Return the largest C of an archived commit; "" if there is none."""
        commits = (i for i in self.instants().values() if i.action in COMMIT_ACTIONS)
        return max((each.completed or "" for each in commits), default="")

    def contents(self, wanted: Iterable[Instant]) -> dict[Instant, bytes]:
        """Return the contents of the instants that are archived."""
        asked = set(wanted)
        times = sorted(each.requested for each in asked)
        found: dict[Instant, bytes] = {}
        for name in self.manifest().reaching(times[0], times[-1]) if times else ():
            if not asked.isdisjoint(self._names(name).values()):
                rows = self._rows(name, [*_TEXTS, "metadata"])
                found |= {_instant(row): row["metadata"] or b"" for row in rows if _instant(row) in asked}
        return found

    def metadata(self, instant: Instant) -> CommitMetadata | None:
        """Return an archived commit's metadata; None if it is not archived."""
        body = self.contents([instant]).get(instant)
        return None if body is None else decode_commit(body, name=file_name(instant), layout=2, table=self._store.url)

    def _names(self, file: str) -> dict[str, Instant]:
        known = self._read.get(file)
        if known is None:
            known = {file_name(each): each for each in (_instant(row) for row in self._rows(file, list(_TEXTS)))}
            if len(self._read) >= _FILES_KEPT:
                self._read.clear()
            self._read[file] = known
        return known

    def _rows(self, file: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        stored = self._store.get(f"{self.folder}/{file}")
        if stored is None:
            raise self._damaged(file, "is in the manifest and not there")
        try:
            rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(stored.body), columns=columns).to_pylist()
            _refuse_strange(rows)
        except (pa.ArrowException, OSError, ValueError, LookupError) as e:
            raise self._damaged(file, "is torn") from e
        return rows

    def _damaged(self, name: str, what: str) -> CorruptTableError:
        return CorruptTableError(
            f"{self._store.url}: {self.folder}/{name} of the archived timeline {what}; restore it from a copy. Nothing was "
            "changed, and the table's rows do not depend on it",
            path=f"{self.folder}/{name}",
        )

    # --- writing ---------------------------------------------------------------------------------------------

    def add(self, instants: Sequence[Archived]) -> None:
        """Archive these instants for every reader. Idempotent, also when several writers archive the same at once.

        Raises:
            StorageError: the store gave no answer; retry.
        """
        rows = sorted(instants, key=lambda each: each.instant.order[::-1])
        wanted = {file_name(each.instant) for each in rows}
        name, size = self._put(rows, wanted)
        # Another archiver may put its manifest in force first; then ours is made again on top of it.
        for _ in range(_TRIES):
            if self._put_in_force(name, size, wanted, rows[0].instant.requested, rows[-1].instant.requested):
                return
        raise self._unanswered("_version_")

    def _put(self, rows: Sequence[Archived], wanted: set[str]) -> tuple[str, int]:
        body = _parquet(rows)
        for level in range(_TRIES):
            # A name that is taken holds the same rows, or others that a writer put there before it gave up.
            name = f"{rows[0].instant.requested}_{rows[-1].instant.requested}_{level}.parquet"
            put = put_secured(self._store, f"{self.folder}/{name}", body)
            if put.outcome is Outcome.UNKNOWN or (there := self._store.head(f"{self.folder}/{name}")) is None:
                break
            if self._names(name).keys() == wanted:
                return name, there.size
        raise self._unanswered(name)

    def _put_in_force(self, name: str, size: int, wanted: set[str], first: str, last: str) -> bool:
        """Try once; return True when the manifest in force names files with all of ``wanted``, with T from first to last."""
        path = f"{self.folder}/_version_"
        stored, manifest = self._store.get(path), self.manifest()
        if stored is None and manifest.version:
            # The JVM died between delete and write; or its write is still under way and would then undo later ones. Restore
            # the number first, so that such a write fails.
            self._store.put_if_absent(path, str(manifest.version).encode())
            return False
        if wanted <= self.instants(first=first, last=last).keys():
            return self._store.secure(path).done  # another put it in force, or we without an answer
        files = [*manifest.files, (name, size)]
        body = json.dumps({"files": [{"fileName": n, "fileLen": length} for n, length in files]}, indent=2).encode()
        version = manifest.version + 1
        # A manifest under the next number was left by a writer that died before it was in force. It may be our own, from an
        # earlier attempt.
        while self._store.put_if_absent(at := f"{self.folder}/manifest_{version}", body).outcome is not Outcome.DONE:
            there = self._store.get(at)
            if there is None:
                return False
            if there.body == body:
                if not self._store.secure(at).done:
                    return False
                break
            version += 1
        number = str(version).encode()
        if stored is None:
            return self._store.put_if_absent(path, number).done
        return self._store.replace_if_match(path, number, stored.tag).done

    def _unanswered(self, name: str) -> StorageError:
        return StorageError(
            f"{self._store.url}: {self.folder}/{name} could not be written; whatever was to be archived is on the active "
            "timeline still, try again",
            path=f"{self.folder}/{name}",
        )


def _plain(name: Any) -> str:
    """Return a file's name from the manifest. Raises ValueError for one that could lead elsewhere."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(name)
    return name


def _instant(row: dict[str, Any]) -> Instant:
    return Instant(row["instantTime"], row["action"], "completed", row["completionTime"])


def _refuse_strange(rows: list[dict[str, Any]]) -> None:
    """Raise ValueError for a row that is no instant: its times become file names."""
    for row in rows:
        times = [row[name] for name in ("instantTime", "completionTime") if name in row]
        if row["action"] not in ACTIONS or not all(isinstance(each, str) and is_time(each) for each in times):
            raise ValueError(row)


def _parquet(rows: Sequence[Archived]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [pa.field(each, pa.string()) for each in _TEXTS]
    fields += [pa.field(each, pa.binary()) for each in ("metadata", "plan")]
    schema = pa.schema(
        [*fields, pa.field("version", pa.int32(), nullable=False)],
        metadata={"parquet.avro.schema": _SCHEMA, "writer.model.name": "avro"},
    )
    columns = [
        [each.instant.requested for each in rows],
        [each.instant.completed for each in rows],
        [each.instant.action for each in rows],
        [each.content for each in rows],
        [each.plan for each in rows],
        [1] * len(rows),
    ]
    out = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema),
        out,
        compression="gzip",
        store_schema=False,
        use_dictionary=False,
        write_statistics=list(_TEXTS),
    )
    return out.getvalue()
