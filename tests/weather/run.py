"""One run of weather: hosts, servers and writers, faults by a seed, and what held."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..servers import BUCKET, KEY
from . import faults, servers
from .hosts import Host, Network, disk, umount
from .judge import Fault, broken, longest_silence, until_next_commit
from .table import LEASE_S

LOCKS = ("zookeeper", "redis", "default")
STORES = ("disk", "s3")
_DISK_MB = 400
_END_S = 300.0


class Writer:
    """A writer's process on its host; one that was killed is followed by another under another name."""

    def __init__(self, weather: Weather, number: int, host: Host) -> None:
        self._weather, self._host = weather, host
        self.name, self._generation = f"w{number}", 0
        self.clock = weather.folder / f"clock-{self.name}"
        self.clock.write_text("0")
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start the next process."""
        self._generation += 1
        name = f"{self.name}.{self._generation}"
        command = [
            sys.executable,
            "-m",
            "tests.weather.writer",
            self._weather.url,
            name,
            f"{self._weather.seed} {name}",
            str(self.clock),
        ]
        with (self._weather.folder / f"{self.name}.log").open("ab") as errors:
            self.process = self._host.start(
                command, stdout=subprocess.PIPE, stderr=errors, environment=self._weather.environment
            )
        threading.Thread(target=self._listen, args=(name, self.process), daemon=True).start()

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def _listen(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError):  # the last line of one that was killed
                self._weather.events.append(json.loads(line) | {"writer": name})


@dataclass
class Report:
    """What happened, and what held."""

    events: list[dict[str, Any]]
    faults: list[Fault]
    findings: list[str]
    figures: dict[str, Any] = field(default_factory=dict)


class Weather:
    """The hosts and processes of one run.

    Attributes:
        disk: where the table or the objects of its store lie, of a size that can be filled.
        events: what writers said, in the order of arrival.
    """

    def __init__(self, folder: Path, *, lock: str, store: str, writers: int, seed: int, calm_s: float = 30.0) -> None:
        self.folder, self.seed, self.on_s3 = folder, seed, store == "s3"
        self._calm_s = calm_s  # without faults at the end, so that all that is owed can be seen
        self.disk, self.events = folder / "disk", list[dict[str, Any]]()
        self.environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_REGION": "us-east-1",
                            "AWS_ALLOW_HTTP": "true", "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}  # fmt: skip
        self.servers: list[servers.Server] = []
        self.network = Network()
        disk(self.disk, _DISK_MB)
        self._home = self.network.add("home")
        self.writer_hosts = [self.network.add(f"writers{n}") for n in range(3)]
        self.url, self._lock = str(self.disk / "table"), ""
        if self.on_s3:
            self.servers.append(servers.s3(self.network.add("store"), self.disk / "s3"))
            host = self.servers[-1].host
            self.url = f"s3://{BUCKET}/table"
            self.environment["AWS_ENDPOINT"] = f"http://{host.address}:7070"
        if lock == "redis":
            self.servers.append(servers.redis(self.network.add("redis"), folder / "redis"))
            self._lock = f"redis://{self.servers[-1].host.address}:6379/0"
        elif lock == "zookeeper":
            ensemble = servers.zookeeper([self.network.add(f"zk{n}") for n in range(3)], folder / "zk")
            self.servers += ensemble
            named = ",".join(f"{each.host.address}:2181" for each in ensemble)
            self._lock = f"zk://{named}/locks"
        self.writers = [Writer(self, n, self.writer_hosts[n % 3]) for n in range(writers)]

    def begin(self) -> None:
        """Start the servers, make the table, start the writers."""
        for each in self.servers:
            each.start()
        for each in self.servers:
            each.wait_ready()
        self._at_home("create", self.url, self._lock)
        for each in self.writers:
            each.start()

    def blow(self, seconds: float) -> Report:
        """Let faults befall for so long, one or two at a time; then a calm, the end of all writers, and the judgement."""
        luck, log = random.Random(self.seed), list[Fault]()
        pending: list[tuple[float, float, str, str, faults.Heal]] = []  # the end first
        since = time.monotonic()
        until, next_at = since + seconds, since + 3.0
        while time.monotonic() < until or pending:
            now = time.monotonic()
            for each in [each for each in pending if each[0] <= now or now >= until]:
                pending.remove(each)
                each[4]()
                log.append(Fault(each[2], each[3], each[1], time.monotonic()))
            if now >= next_at and now < until and len(pending) < 2:
                kind, whom, lasts_s, begin = faults.draw(self, luck)
                if all(each[2] != kind for each in pending):
                    with suppress(subprocess.CalledProcessError):  # a disk that is being written to stays writable
                        pending.append((now + lasts_s, now, kind, whom, begin()))
                next_at = now + luck.uniform(1.0, 8.0)
            time.sleep(0.05)  # the pace at which faults begin and end
        calm = time.monotonic()
        time.sleep(self._calm_s)
        for each in self.writers:
            each.kill()
        ended = time.monotonic()
        told = json.loads(self._at_home("rows", self.url).splitlines()[-1])
        events = sorted(self.events, key=lambda each: each["at"])
        log.sort(key=lambda each: each.began)
        findings = [*broken(events, told["rows"], told["others"]), *told["damage"]]
        silence, when = longest_silence(events, calm, ended)
        if silence > LEASE_S + 5.0 + 10.0:
            findings.append(f"{silence:.1f} s without a commit, {when - calm:.1f} s after the last fault had healed")
        longest, at = longest_silence(events, since, calm)
        beside = [f"{each.kind} ({each.whom})" for each in log if each.began < at + longest and each.ended > at]
        figures = {
            "operations": dict(Counter(f"{each['op']} {each['told']}" for each in events if each["told"] != "begins")),
            "faults": dict(Counter(each.kind for each in log)),
            "longest_without_a_commit_s": round(longest, 1), "beside": beside,
            "until_the_next_commit_s": {kind: [round(each, 1) for each in sorted(took)]
                                        for kind, took in until_next_commit(events, log).items()},
        }  # fmt: skip
        return Report(events, log, findings, figures)

    def close(self) -> None:
        """End everything, and give back what the machine has lent."""
        for writer in self.writers:
            with suppress(AttributeError, ProcessLookupError):
                writer.kill()
        for server in self.servers:
            server.kill()
        self.network.close()
        umount(self.disk)

    def _at_home(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tests.weather.table", *arguments]
        with (self.folder / "home.log").open("ab") as errors:
            process = self._home.start(command, stdout=subprocess.PIPE, stderr=errors, environment=self.environment)
            told, _ = process.communicate(timeout=_END_S)
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {(self.folder / 'home.log').read_text()[-3000:]}")
        return told.decode()
