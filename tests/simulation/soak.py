"""`make soak SECONDS=600 [SEED=n]`: schedules of ever new seeds on all cores, until the time is over or one fails."""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from threading import Event

from .faults import ALL_STEPS, FAULTS, faults_of
from .install import simulated
from .shape import Shape
from .world import run, words, world_of

BLOCK = 250
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Tally:
    """What became of some schedules."""

    schedules: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    also: Counter[str] = field(default_factory=Counter)  # what is no fault of a request
    failed: list[tuple[Shape, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.cpu_s += other.cpu_s
        self.outcomes += other.outcomes
        self.struck += other.struck
        self.also += other.also
        self.failed += other.failed

    def missed(self) -> list[tuple[str, str]]:
        """Faults that have never struck a step of the protocol that they can strike."""
        return [(f, s) for s in ALL_STEPS for f in faults_of(s) if not self.struck[f, s]]

    def table(self) -> str:
        """Steps of the protocol by faults: how often each has struck."""
        lines = [" " * 17 + " ".join(f"{fault:>13}" for fault in FAULTS)]
        for step in ALL_STEPS:
            cells = (str(self.struck[f, step]) if f in faults_of(step) else "." for f in FAULTS)
            lines.append(f"{step:17}" + " ".join(f"{cell:>13}" for cell in cells))
        return "\n".join(lines)


def with_keepers(shape: Shape) -> Shape:
    """The same with services, and with a log that forgets soon: that is where most of what is rare was found."""
    services = {"keepers": 1 + shape.seed % 2, "readers": shape.seed % 3 // 2}
    return replace(shape, **services, epoch_slots=min(shape.epoch_slots, 12), log_epochs=1)


def tally(
    first: int,
    count: int,
    *,
    keepers: bool = False,
    streams: bool = False,
    neighbours: bool = False,
    coordinated: bool = False,
    several: bool = False,
) -> Tally:
    """Run the schedules of so many seeds. They go on after a failure, which is noted. The others: in all of them."""
    found, began = Tally(), time.process_time()
    gc.disable()  # greenlets and worlds refer to each other; collecting after each block is much cheaper
    try:
        with simulated():
            for seed in range(first, first + count):
                shape = Shape.of(seed).streaming() if streams else Shape.of(seed)
                shape = with_keepers(shape) if keepers else shape
                shape = shape.beside() if neighbours else shape
                shape = shape.coordinated() if coordinated else shape
                shape = shape.several() if several else shape
                try:
                    world = run(shape)
                except Exception as e:
                    found.failed.append((shape, words(e)))
                    continue
                found.steps += world.scheduler.steps
                found.outcomes.update(attempt.outcome for attempt in world.attempts)
                found.struck += world.faults.struck
                found.also += world.also
    finally:
        gc.enable()
        gc.collect()
    found.schedules, found.cpu_s = count, time.process_time() - began
    return found


def shrunk(shape: Shape, *, seeds: int = 200, seconds: float = 60.0) -> Shape:
    """A smaller shape that fails as well. With less in it the same seed means another schedule, so several are tried."""
    until = time.monotonic() + seconds
    smaller: Iterator[Shape] = shape.smaller()
    while (candidate := next(smaller, None)) is not None and time.monotonic() < until:
        for seed in (shape.seed, *range(seeds)):
            if fails(replace(candidate, seed=seed)):
                shape = replace(candidate, seed=seed)
                smaller = shape.smaller()
                break
    return shape


def fails(shape: Shape) -> bool:
    try:
        run(shape)
    except Exception:
        return True
    return False


def story(shape: Shape) -> str:
    """The schedule as a timeline, with a column for each process, and how it ended."""
    with simulated():
        world = world_of(shape, trace=True)
        end = "nothing was wrong"
        try:
            world.run()
        except Exception as e:
            end = words(e)
    return f"{shape}\n{world.scheduler.story()}\n{end}\n"


def deaf() -> None:
    """Have a worker finish its block when the whole is told to end: what it found is counted."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=None, help="the first seed; otherwise the time")
    parser.add_argument(
        "--keepers", action="store_true", help="services in every schedule, and a log that forgets soon"
    )
    parser.add_argument("--streams", action="store_true", help="a table with streams in every schedule")
    parser.add_argument("--neighbours", action="store_true", help="beside another engine in every schedule")
    parser.add_argument("--coordinated", action="store_true", help="with coordinators in every schedule")
    parser.add_argument("--several", action="store_true", help="a bank over several tables in every schedule")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args()
    first = int(time.time()) * 10_000 if given.seed is None else given.seed
    began, said = time.time(), 0.0
    until = began + given.seconds
    total, told = Tally(), Event()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: told.set())
    print(f"from seed {first} for {given.seconds:g} s on {given.processes} processes; Ctrl-C ends it early", flush=True)
    with ProcessPoolExecutor(given.processes, initializer=deaf) as pool:
        blocks = itertools.count(first, BLOCK)
        block = functools.partial(
            tally,
            count=BLOCK,
            keepers=given.keepers,
            streams=given.streams,
            neighbours=given.neighbours,
            coordinated=given.coordinated,
            several=given.several,
        )
        running = {pool.submit(block, next(blocks)) for _ in range(2 * given.processes)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                total.add(each.result())
                if time.time() < until and not total.failed and not told.is_set():
                    running.add(pool.submit(block, next(blocks)))
            if time.time() - said > 10:
                said = time.time()
                rate = total.schedules / (said - began)
                print(
                    f"{said - began:6.0f} s  {total.schedules:9,} schedules  {rate:6.1f}/s  {len(total.failed)} violations",
                    flush=True,
                )
    print(f"\n{total.schedules:,} schedules, {total.steps:,} steps, {total.cpu_s:.0f} s of CPU")
    print("transactions:", ", ".join(f"{n:,} {outcome}" for outcome, n in total.outcomes.most_common()))
    print(f"\nhow often each fault has struck each step:\n{total.table()}")
    print("\nand so often:", ", ".join(f"{n:,} {what}" for what, n in sorted(total.also.items())))
    missed = total.missed()
    print(f"never struck: {', '.join(f'{f} at {s}' for f, s in missed) or 'none of those that can'}\n")
    for shape, what in total.failed[:1]:
        print(f"VIOLATION {what}\nseed {shape.seed}, here shrunk:\n")
        print(story(shrunk(shape)))
    print(f"{len(total.failed)} violations in {total.schedules:,} schedules")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
