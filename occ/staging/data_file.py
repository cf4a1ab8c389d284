"""A file that a transaction adds to the table, whatever is in it: its marker first, its bytes, at last its name.

One name per (file group, T), whoever writes it. A task that Spark runs again, or twice at once, meets the name of its
first run; `DataFile.publish` then loses, and who wrote it looks at the file that stands. So there are never two files
of one file group and T, which readers would refuse or count twice.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import IO, Literal

from ...errors import RolledBackError, StorageError
from ...hudi.files import PARTITION_METADATA, BaseFile, LogFile, join, partition_metadata
from ...storage import Outcome, put_secured, secured
from ..liveness import Marker, delete_data_file, is_no_part, stands
from .file_spec import FileSpec, refuse_if_over


class DataFile:
    """Makes one file appear whole and under a name that no other run of the transaction has taken.

    Args:
        io: what the marker says of it: CREATE for the first file of a group, MERGE for the next version, APPEND for a log file.
        first: it is the first file of its group, so that its partition may be new.
        marker: announces it already.
    """

    def __init__(
        self,
        spec: FileSpec,
        *,
        partition: str,
        name: str,
        io: Literal["CREATE", "MERGE", "APPEND"],
        first: bool = False,
        marker: Marker | None = None,
    ) -> None:
        self._spec, self._partition, self._io, self._first = spec, partition, io, first or io == "CREATE"
        self.path, self._announced = join(partition, name), marker
        self._stack = ExitStack()

    def open(self) -> IO[bytes]:
        """Announce the file and return the stream that its bytes go to.

        Raises:
            RolledBackError: the transaction has ended.
            ConflictError: it gives way to another one (``early_conflict_detection``).
        """
        spec = self._spec
        spec.refuse_if_over()
        if self._first:
            _announce_partition(spec, self._partition)
        file = BaseFile.at(self.path, 0) or LogFile.at(self.path, 0)
        assert file is not None
        with spec.announcing(file.group):
            self._marker = self._announced or spec.announce([(self.path, self._io)])[0]
        self._object = self._stack.enter_context(spec.store.create(self.path))
        return self._object.stream

    def publish(self) -> int | None:
        """Give the file its name. Returns its size, or None where a file of another run has it, which is on disk then.

        Raises:
            RolledBackError: the transaction has ended meanwhile.
            StorageError: the store gave no answer, or refused.
        """
        spec = self._spec
        self._object.stream.flush()
        size = self._object.stream.tell()
        if spec.record is not None:
            spec.record.arrived()
        if not spec.lives():
            if not stands(spec.store, self._marker):
                raise self._withheld()
            refuse_if_over(spec.store, spec.instant)
        put = self._object.publish()
        # What is there, ours or of another run, may be on no disk.
        kept = put if put.done else secured(spec.store, self.path)
        if not spec.lives() and not stands(spec.store, self._marker):
            # Stopped after the look above, for so long that the sweep went by before the file was there; or after the
            # file was there, which another run of this task has reported and the transaction has committed (trap 19).
            if put.outcome is Outcome.DONE and is_no_part(spec.store, spec.instant, self.path):
                delete_data_file(spec.store, self.path, instant=spec.instant)
            raise self._withheld()
        if put.outcome is Outcome.DONE:
            return size
        if not kept.done:
            raise StorageError(
                f"{self.path} could not be published: {kept.cause or put.cause or 'the store gave no answer'}; nothing "
                "landed, run the write again",
                path=self.path,
            )
        return None

    def close(self) -> None:
        """Drop what was not published; the marker stays for the one who cleans up."""
        self._stack.close()

    def _withheld(self) -> RolledBackError:
        return RolledBackError(
            f"the marker of {self.path} is gone: transaction {self._spec.instant} was ended by somebody else and its "
            "file is withheld. Run the write again",
            instant=self._spec.instant,
            path=self.path,
        )


def _announce_partition(spec: FileSpec, partition: str) -> None:
    """JVM readers find a partition only by this file, so it stands before the first data file."""
    path, known = join(partition, PARTITION_METADATA), spec.record.partitions if spec.record is not None else set()
    if partition in known:  # nobody deletes it
        return
    if spec.store.head(path) is None:
        put = put_secured(spec.store, path, partition_metadata(spec.instant, partition))
        if not put.done:
            raise StorageError(
                f"{path} could not be written: {put.cause}; nothing landed, run the write again", path=path
            )
    known.add(partition)
