"""Run a table's services on one of several hosts: whoever leads clusters, cleans and archives; the others wait in line.

    python examples/lead_services.py TABLE LOCK_URL [EVERY_S]

Start it on each host. A leader that dies is followed when its lease ends, one that is told to stop (SIGTERM, or
`lakelatch locks revoke LOCK_URL "services of TABLE"`) finishes the service it is at and steps down. A leader that was paused
too long learns that another leads, and stands in line again. The lock saves double work; it is not what keeps the table safe:
two leaders at once would only do the same plans twice, and one execution of each lands.
"""

import signal
import sys
import threading

import lakelatch


class Leader:
    def __init__(self, table: str, lock_url: str, every_s: float) -> None:
        self.table, self.every_s = table, every_s
        self.told_to_stop = False
        self.leading = False
        self.step_down = threading.Event()
        self.lock = lakelatch.lock(
            lock_url,
            f"services of {table}",
            wait_s=float("inf"),
            reason="table services",
            on_lost=lambda _: self.step_down.set(),
            on_revoke=lambda _: self.step_down.set(),
        )

    def stop(self, *_: object) -> None:
        """The handler of SIGTERM: whoever leads finishes what it does, whoever waits ends at once."""
        self.told_to_stop = True
        self.step_down.set()
        if not self.leading:
            sys.exit()

    def run(self) -> None:
        while not self.told_to_stop:
            try:
                with self.lock as lease, lakelatch.open(self.table) as table:
                    self.leading = True
                    print(f"leads with token {lease.token}", flush=True)
                    self.serve(table, lease)
            except lakelatch.LockLostError as lost:
                print(f"leads no longer: {lost.reason}", flush=True)
            except lakelatch.LockUnavailableError as outage:  # nobody leads meanwhile
                print(outage, file=sys.stderr, flush=True)
                self.step_down.wait(self.every_s)
            finally:
                self.leading = False
            if not self.told_to_stop:
                self.step_down.clear()

    def serve(self, table: lakelatch.Table, lease: lakelatch.locks.Lease) -> None:
        services = {"clustered": table.cluster, "cleaned": table.clean, "archived": lambda: table.archive().instants}
        while True:
            for done, service in services.items():
                lease.ensure_held()
                if self.step_down.is_set():
                    return
                try:
                    if outcome := service():
                        print(done, outcome, flush=True)
                except (
                    lakelatch.LakeLatchError
                ) as e:  # a writer was quicker, or the store is away: the next round is soon
                    if not e.retryable:
                        raise
                    print(e, file=sys.stderr, flush=True)
            self.step_down.wait(self.every_s)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    leader = Leader(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) == 4 else 60.0)
    signal.signal(signal.SIGTERM, leader.stop)
    leader.run()
