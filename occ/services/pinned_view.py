"""Reading one state of the table whose files stay: a reader's lease, the view it covers, and the check that it held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...arguments import suggesting
from ...errors import LockLostError, StorageError
from ...hudi.timeline import EARLIEST
from ..liveness import LeaseOfAnotherProcess, LeaseSender, ReaderLease, lease_path
from ..scan import Scan, scan_view
from ..session import Partition, Session, View, refuse_cleaned

if TYPE_CHECKING:
    from ...hudi.timeline import Snapshot


@suggesting
class PinnedView:
    """One state of the table whose files stay while the block lasts; made by `Table.pinned`.

    It pickles: other processes can read the same state while the block lasts here.

    Attributes:
        view: the snapshot and schema.
        completion: the newest completion time in it; the checkpoint of an incremental reader.
    """

    def __init__(
        self, session: Session, view: View, completion: str, beating: LeaseSender | LeaseOfAnotherProcess, *, past: bool
    ) -> None:
        self._session, self.view, self.completion, self._beating, self._past = session, view, completion, beating, past

    def __reduce__(self) -> tuple[Any, ...]:
        return _elsewhere, (self._session, self.view, self.completion, self._beating.lease, self._past)

    @property
    def snapshot(self) -> Snapshot:
        """The file slices."""
        return self.view.snapshot

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        partitions: Iterable[Partition] | None = None,
    ) -> Scan:
        """Return rows of this state, as `Table.read`. Read the scan inside the block; reading raises as `check`."""
        return scan_view(
            self._session,
            self.view,
            columns=columns,
            where=where,
            partitions=partitions,
            completion=self.completion,
            hold=self._checked,
        )

    @contextmanager
    def _checked(self) -> Iterator[None]:
        self.check()
        yield
        self.check()

    def check(self) -> None:
        """Confirm that all reads before this call were complete.

        Raises:
            LockLostError: the lease ended because its beats stopped, so files may be gone; read again.
            InputError: this past state was cleaned away while the reader began.
        """
        # A clean that was being decided when the lease was put did not see the lease.
        if self._past:
            refuse_cleaned(self._session, as_of_completion=self.completion)
        if self._beating.lost:
            raise LockLostError(
                f"{self._session.url}: the lease of this reader has ended{self._beating.why}; files of its state may be "
                "gone. Read again",
                table=self._session.url,
                reason="silent",
            )


def _elsewhere(session: Session, view: View, completion: str, lease: ReaderLease, past: bool) -> PinnedView:
    return PinnedView(session, view, completion, LeaseOfAnotherProcess(session.store, lease), past=past)


@contextmanager
def pinned(session: Session, *, as_of_completion: str | None) -> Iterator[PinnedView]:
    """See `Table.pinned`."""
    last = session.log.catch_up().last
    if as_of_completion is not None:
        shown = [each.completed or each.requested for each in session.timeline().commits]
        if as_of_completion > max([last.completion if last else EARLIEST, *shown]):
            # A lease at a future moment would keep that moment's state, not this one.
            as_of_completion = None
    env, past = session.env, as_of_completion is not None
    known = as_of_completion or (last.completion if last else EARLIEST)
    try:
        # The lease comes before the view: a clean decided in between then sees it, and keeps the files.
        beating = LeaseSender(
            session.store, ReaderLease(env.uuid(), session.writer, known, exact=past, process=env.process())
        )
    except StorageError as e:
        e.add_note("who cannot write into .hoodie is covered by the retention of cleanings only: use Table.read")
        raise
    timer = None
    try:
        if as_of_completion is None:
            view, known = session.latest()
            beating.lease = replace(beating.lease, at=known, exact=True)
            beating.beat()
        else:
            view = session.view(as_of_completion=as_of_completion)
        timer = env.every(session.settings.heartbeat_interval_s, beating.beat, name="lakelatch-reader")
        found = PinnedView(session, view, known, beating, past=past)
        # A clean that was decided just before the lease may have deleted files: find out before the first read.
        found.check()
        yield found
        found.check()
    finally:
        if timer is not None:
            timer.cancel(join_s=5.0)
        session.store.delete(lease_path(beating.lease.reader))
