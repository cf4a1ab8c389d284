"""A data file that a transaction adds to the table: first its marker, then its bytes, last its name.

Each (file group, T) has one file name. A task that Spark runs again, or twice at once, meets the name of its first run:
`DataFile.publish` then returns None, and the writer compares the published file with its own. So there are never two
files of one file group and T, which readers would refuse or count twice.
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
    """Publishes one file whole, under a name that no other run of the transaction has taken.

    Args:
        io: the marker's kind: CREATE for the first file of a group, MERGE for the next version, APPEND for a log file.
        first: True for the first file of its group, whose partition may be new.
        marker: the file's marker, if it is announced already.
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
            ConflictError: the transaction yields to another one (``early_conflict_detection``).
        """
        spec = self._spec
        # Before the marker is put: behind the sweep of an ended transaction it would only be litter.
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
        """Publish the file and return its size in bytes, or None if another run's file, by now on disk, has the name.

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
        # t=0 the check above; t=1 a cleaner ends the transaction and sweeps; t=2 the name appears. So the marker is
        # looked for again below.
        put = self._object.publish()
        # An outcome other than done may mean that the file, ours or another run's, is not on disk yet: secure it.
        kept = put if put.done else secured(spec.store, self.path)
        if not spec.lives() and not stands(spec.store, self._marker):
            # A race with the sweep. Either this process stalled after the check above: the sweep deletes the marker, finds
            # no file, and then the file appears; it must go. Or it stalled after the file appeared: another run of this
            # task reports the file and the transaction commits it; it must stay (trap 19).
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
        """Drop unpublished bytes; the marker stays, so that cleaning finds the file."""
        self._stack.close()

    def _withheld(self) -> RolledBackError:
        return RolledBackError(
            f"the marker of {self.path} is gone: transaction {self._spec.instant} was ended by somebody else and its "
            "file is withheld. Run the write again",
            instant=self._spec.instant,
            path=self.path,
        )


def _announce_partition(spec: FileSpec, partition: str) -> None:
    """Write the partition metadata file before the first data file: JVM readers find a partition only by it."""
    path, known = join(partition, PARTITION_METADATA), spec.record.partitions if spec.record is not None else set()
    if partition in known:  # written or seen before; it is never deleted
        return
    if spec.store.head(path) is None:
        put = put_secured(spec.store, path, partition_metadata(spec.instant, partition))
        if not put.done:
            raise StorageError(
                f"{path} could not be written: {put.cause}; nothing landed, run the write again", path=path
            )
    known.add(partition)
