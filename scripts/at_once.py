"""Run commands at once: the first one's output as it comes, the others' when they have ended. Exits with the worst code.

A shell would start those in the background deaf to Ctrl-C, and all that they start as well.
"""

import shlex
import subprocess
import sys
import tempfile


def main(first: str, *others: str) -> int:
    """The worst exit code."""
    running = []
    try:
        for command in others:
            log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read below, gone with this process
            running.append((command, log, subprocess.Popen(shlex.split(command), stdout=log, stderr=log)))
        codes = [subprocess.call(shlex.split(first))]
        for command, log, process in running:
            codes.append(process.wait())
            log.seek(0)
            sys.stdout.write(f"\n$ {command}\n{log.read()}")
    finally:
        for _command, _log, process in running:
            process.terminate()
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
