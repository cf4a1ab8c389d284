"""``lakelatch streams follow``.

JSON: one object a batch, with ``rows``, ``bytes`` (the offset behind the last one), ``instant`` and ``repeated``.
"""

from __future__ import annotations

import os
import select
import stat
import time
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from ...errors import InputError
from ..options import Json, Url
from ..output import count_text, print_json, say
from ..rows.files import STDIN, json_rows, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCH_BYTES = 8 << 20  # with more than that a batch is committed before more is read
_READ_BYTES = 1 << 20
_PAUSE_S = 0.5


def follow(
    url: Url,
    name: Annotated[str, typer.Argument(metavar="STREAM", help="Its name.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines, to which others append; - is standard input.")
    ],
    *,
    source: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="Under which the table remembers the offset; else the path of FILE."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End at the end of FILE, and do not wait for more.")] = False,
    json: Json = False,
) -> None:
    """Write the lines of a growing file as events of a stream, each once, until Ctrl-C. Started again it goes on where it was."""
    import lakelatch

    if source is None:
        if file == STDIN:
            raise InputError(
                "standard input has no name; add --source SOURCE, under which the table remembers its offset"
            )
        source = os.path.realpath(file)
    with lakelatch.open(url) as table:
        stream, stands = table.stream(name), table.last_batch(source)
        table.session.refuse_if_unwritable()
        for chunk in _lines(file, stands or 0, once=once):
            end = (stands or 0) + len(chunk)
            try:
                rows = json_rows(chunk.split(b"\n"), table.schema())
            except InputError as e:
                raise InputError(f"{file}, in the lines after byte {stands or 0:,}: {e}", **e.details) from e
            done = stream.upsert(rows, batch=(source, end, stands))
            if json:
                told = {"rows": rows.num_rows, "bytes": end, "instant": done.instant, "repeated": done.repeated}
                print_json(told, indent=None)
            else:
                say(f"{done.instant}: {count_text(rows.num_rows, 'event')}, up to byte {end:,} of {source}")
            stands = end


def _lines(file: str, begin: int, *, once: bool) -> Iterator[bytes]:
    """Yield whole lines of a file from an offset on, as many as are there; blank ones come with those that follow.

    Raises:
        InputError: the file cannot be read, is not the one that was written up to ``begin``, or gets shorter.
    """
    try:
        with opened(file) as source:
            yield from _lines_of(source, file, begin, once=once)
    except OSError as e:
        raise InputError(f"{file} cannot be read: {e}. What was told here is written") from e


def _lines_of(lines: BinaryIO, file: str, begin: int, *, once: bool) -> Iterator[bytes]:
    number, held, ended = lines.fileno(), b"", False
    regular = stat.S_ISREG(os.fstat(number).st_mode)
    at = _skip(lines, file, begin)

    def whole() -> bytes:
        # A line that is not finished yet is left; at the end of a pipe nothing comes behind it.
        found = held if ended and not regular else held[: held.rfind(b"\n") + 1]
        return found if found.strip() else b""

    while True:
        ended = False
        while not ended and (
            not whole() or (len(held) < _BATCH_BYTES and (regular or select.select([number], [], [], 0)[0]))
        ):
            # A signal that comes right before a read that waits would be handled after it, and that may be never.
            while not (regular or select.select([number], [], [], _PAUSE_S)[0]):
                pass
            more = os.read(number, _READ_BYTES)
            held, at, ended = held + more, at + len(more), not more
        if found := whole():
            yield found
            held = held[len(found) :]
        elif once or not regular:
            return
        elif os.fstat(number).st_size < at:
            raise InputError(
                f"{file} has become shorter than what was read of it, and has to grow only. What was told here is written"
            )
        else:
            time.sleep(_PAUSE_S)


def _skip(lines: BinaryIO, file: str, begin: int) -> int:
    """Read up to an offset, which has to be behind a line; return it."""
    last = b"\n"
    if lines.seekable():
        if begin:
            lines.seek(begin - 1)
            last = os.read(lines.fileno(), 1)
    else:
        left = begin
        while left and (last := os.read(lines.fileno(), min(left, _READ_BYTES))):
            left -= len(last)
    if not last.endswith(b"\n"):
        raise InputError(
            f"{file} has no line that ends at byte {begin:,}, up to which the table has its events: it is another file. "
            "Give it a --source of its own. Nothing was written"
        )
    return begin
