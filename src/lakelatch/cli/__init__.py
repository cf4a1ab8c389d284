"""The command line: ``lakelatch``.

What each command prints with ``--json`` is told in its own module.
"""

from __future__ import annotations

import sys

_ANYWHERE = ("--debug", "--verbose")


def main() -> None:
    """Run the command line of this process."""
    from .interrupt import arrives

    arrives()
    from .app import app

    app(args=reordered(sys.argv[1:]), prog_name="lakelatch")


def reordered(arguments: list[str]) -> list[str]:
    """The arguments with the general options first, so that they may stand anywhere before a ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    general = [each for each in arguments[:end] if each in _ANYWHERE]
    return [*general, *(each for each in arguments[:end] if each not in _ANYWHERE), *arguments[end:]]
