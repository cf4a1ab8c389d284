"""``python -m tests.fuzz SECONDS``: the targets in turn with ever new bytes until the time is over. Part of `make soak`."""

from __future__ import annotations

import logging
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from .targets import TARGETS

ROUND = 500


def main(seconds: float) -> None:
    """Raises what a target raised, with the bytes, which Hypothesis has made as short as it can."""
    logging.disable()  # every refusal is told, and here nearly all is refused
    end, number = time.monotonic() + seconds, time.time_ns()
    done = 0
    while time.monotonic() < end:
        for name, target in TARGETS.items():
            print(f"\r{done:,} inputs; {name:24}", end="", flush=True)
            run = seed(number)(given(target.given)(target.__call__))
            phases = [Phase.generate, Phase.shrink]
            settings(
                max_examples=ROUND,
                deadline=60_000,
                database=None,
                phases=phases,
                suppress_health_check=list(HealthCheck),
            )(run)()
            done, number = done + ROUND, number + 1
    print(f"\r{done:,} inputs for {len(TARGETS)} decoders: none crashed{'':12}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
