"""The command line: ``lakelatch``.

Each module documents the ``--json`` output of its command.
"""

from __future__ import annotations

import gc
import sys

_ANYWHERE = ("--debug", "--verbose")


def main() -> None:
    """Run the command line of this process."""
    # At Python's own threshold the collector would go through what a command imports some four hundred times.
    gc.set_threshold(50_000)
    from .standard_streams import OutputLostError, flush, give_up, secure

    # This order: a file opened before `secure` could get the number of a closed stream, and an import before
    # `arrives` could swallow Ctrl-C.
    secure()
    from .outcome import arrives

    arrives()
    from .app import app

    try:
        try:
            app(args=reordered(sys.argv[1:]), prog_name="lakelatch")
        finally:
            # Inside the outer try: output that is lost only at this flush has to set the exit code, too.
            flush()
    except OutputLostError as e:
        sys.exit(give_up(e))


def reordered(arguments: list[str]) -> list[str]:
    """Return the arguments with the general options first, so that they may stand anywhere before a ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    general = [each for each in arguments[:end] if each in _ANYWHERE]
    return [*general, *(each for each in arguments[:end] if each not in _ANYWHERE), *arguments[end:]]
