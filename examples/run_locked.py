"""Run a command while a lock is held, and end it when the lock is lost: the nightly job that must not run twice.

    python examples/run_locked.py file:///shared/locks nightly-report -- make report

Says who is running it already, and exits with 75 (try again later). Any lock URL will do; docs/locks.md has them.
"""

import subprocess
import sys

from lakelatch.errors import LockError, LockTimeoutError
from lakelatch.locks import open_provider


def main(url: str, key: str, command: list[str]) -> int:
    with open_provider(url) as locks:
        try:
            lease = locks.acquire(key, wait_s=0, reason=" ".join(command)[:80])
        except LockTimeoutError as busy:
            print(busy, file=sys.stderr)
            return 75
        # The token lets the command, or what it writes to, refuse a predecessor that woke up late.
        job = subprocess.Popen(["/usr/bin/env", f"LOCK_TOKEN={lease.token}", *command])
        lease.on_lost(lambda _: job.terminate())
        try:
            with lease:
                return job.wait()
        except LockError as lost:
            print(lost, file=sys.stderr)
            return 75


if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[3] != "--":
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[4:]))
