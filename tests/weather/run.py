"""One run of weather: hosts, servers and writers, faults by a seed, and what held."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakelatch
from lakelatch.demo import neighbours

from ..jvm.readers import BUNDLE, PYTHON
from ..servers import BUCKET, KEY
from . import faults, servers
from .hosts import Host, Network, disk, umount
from .judge import Fault, Recovery, broken, commits, growth, longest_silence, quantiles, recovery
from .table import LEASE_S

LOCKS = ("zookeeper", "redis", "sentinel", "cluster", "dynamodb", "object", "default", "coordinator", "neighbours")
STORES = ("s3", "disk")
PLACES = [(lock, store) for store in STORES for lock in LOCKS if (lock, store) != ("neighbours", "s3")]
# No lock excludes a holder that stops before its put, and Hudi compares by clocks that have to agree: docs/limits.md.
_NOT_BESIDE = {"writer paused", "clock step", "server forgets"}
_JVM_SESSION = {"hoodie.write.lock.zookeeper.session_timeout_ms": "10000",
                "hoodie.write.lock.zookeeper.connection_timeout_ms": "5000"}  # fmt: skip
COMMIT_S_MAX = 90.0  # after everything has healed; longer is a finding
_HUDI_JOB = Path(neighbours.__file__).with_name("hudi_job.py")
_DISK_MB = 400
_END_S = 600.0
_SAMPLE_S = 5.0
_PAGE = resource.getpagesize()


class Writer:
    """A writer's process on its host; one that was killed is followed by another under another name."""

    def __init__(self, weather: Weather, name: str, host: Host, role: str = "writer") -> None:
        self._weather, self._host, self._role = weather, host, role
        self.name, self._generation = name, 0
        self.clock = weather.folder / f"clock-{self.name}"
        self.clock.write_text("0")
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start the next process."""
        self._generation += 1
        name = f"{self.name}.{self._generation}"
        command = [
            sys.executable, "-m", "tests.weather.writer", self._weather.url, name, f"{self._weather.seed} {name}",
            str(self.clock), self._role, *self._weather.coordinated,
        ]  # fmt: skip
        with (self._weather.folder / f"{self.name}.log").open("ab") as errors:
            self.process = self._host.start(
                command, stdout=subprocess.PIPE, stderr=errors, environment=self._weather.environment
            )
        threading.Thread(target=self._listen, args=(name, self.process), daemon=True).start()

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def revive(self) -> None:
        """Start another process where one has ended by itself, as without memory."""
        if self.process.poll() is not None:
            self.start()

    @property
    def descriptors(self) -> int:
        """The number of files and connections that it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def landed(self) -> int:
        """The number of its process's operations that have landed."""
        name = f"{self.name}.{self._generation}"
        return sum(each["told"] == "landed" and each["writer"] == name for each in list(self._weather.events))

    @property
    def memory(self) -> int:
        """The bytes of its address space."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[0]) * _PAGE

    def _listen(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError):  # the last line of one that was killed
                self._weather.events.append(json.loads(line) | {"writer": name})


class Jvm(Writer):
    """A job of JVM Hudi, which appends one row after the other, each again until it has landed."""

    def start(self) -> None:
        self._generation += 1
        weather, name = self._weather, f"{self.name}.{self._generation}"
        with lakelatch.open(weather.url) as table:
            options = (
                neighbours.job_options(table) | _JVM_SESSION | {"hoodie.datasource.write.partitionpath.field": "part"}
            )
        rows = [[{"id": f"{name}-{number}", "part": "x", "v": number}] for number in range(1, 1000)]
        job = weather.folder / f"{self.name}.json"
        job.write_text(json.dumps({"table": weather.url, "options": options, "rounds": rows, "first": 1}))
        with (weather.folder / f"{self.name}.log").open("ab") as errors:
            self.process = self._host.start(
                [str(PYTHON), str(_HUDI_JOB), str(BUNDLE), str(job)],
                stdout=subprocess.PIPE, stderr=errors, environment={"PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip
        threading.Thread(target=self._listen, args=(name, self.process), daemon=True).start()

    def kill(self) -> None:
        """Kill the JVM as well, which is a process of its own."""
        for each in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in each.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        super().kill()

    def _listen(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        began = 0.0
        for line in process.stdout:
            said, now = json.loads(line), time.monotonic()
            event = {"at": now, "op": "append", "n": said["round"], "writer": name}
            if said["event"] == "began" and said["attempt"] == 1:
                began = now
                self._weather.events.append(event | {"told": "begins"})
            elif said["event"] == "landed":
                self._weather.events.append(event | {"told": "landed", "took": now - began})


@dataclass
class Report:
    """What happened, and what held."""

    events: list[dict[str, Any]]
    faults: list[Fault]
    recoveries: list[Recovery]
    findings: list[str]
    figures: dict[str, Any] = field(default_factory=dict)


class Weather:
    """The hosts and processes of one run.

    Attributes:
        disk: where the table or the objects of its store lie, of a size that can be filled.
        events: what writers said, in the order of arrival.
        mortals: the writers that faults befall; the first one meets cuts alone, so that it lives long.
        coordinated: further arguments of writers that ask a coordinator.
        kinds: of faults, from which it draws.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lock: str,
        store: str,
        writers: int,
        seed: int,
        calm_s: float = 20.0,
        kinds: Collection[str] = tuple(faults.KINDS),
    ) -> None:
        self._beside = lock == "neighbours"
        self.kinds = [each for each in kinds if not (self._beside and each in _NOT_BESIDE)]
        self.folder, self.seed, self.on_s3 = folder, seed, store == "s3"
        self._calm_s = calm_s  # without faults at the end, so that all that is owed can be seen
        self.disk, self.events = folder / "disk", list[dict[str, Any]]()
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.servers: list[servers.Server] = []
        self.network = Network()
        disk(self.disk, _DISK_MB)
        self._home = self.network.add("home")
        self.writer_hosts = [self.network.add(f"writers{n}") for n in range(3)]
        self.url, self._lock = str(self.disk / "table"), ""
        self._once: Callable[[], None] = lambda: None  # after the servers have started for the first time
        if self.on_s3 or lock == "object":
            self._begin_store()
        if self.on_s3:
            self.url = f"s3://{BUCKET}/table"
        self._begin_lock(lock)
        self.coordinated: list[str] = []
        self._coordinator: servers.Server | None = None
        if lock == "coordinator":
            host, place = self.network.add("coordinator"), folder / "coordinator"
            urls = [f"{self.url}{end}" for end in ("", "-two", "-claims")]  # streams ask no coordinator
            self._coordinator = servers.coordinator(host, place, urls, self.environment)
            self.coordinated = [f"http://{host.address}:{servers.COORDINATED}", str(place / "token")]
        role = "beside" if self._beside else "writer"
        self.writers = [Writer(self, f"w{n}", self.writer_hosts[n % 3], role) for n in range(writers)]
        self.mortals = [*self.writers[1:], Writer(self, "keeper", self.writer_hosts[0], "keeper")]
        if self._beside:
            self.mortals.append(Jvm(self, "jvm", self.writer_hosts[1]))

    def _begin_store(self) -> None:
        self.servers.append(servers.s3(self.network.add("store"), self.folder / "store", self.disk / "objects"))
        self.environment["AWS_ENDPOINT"] = f"http://{self.servers[-1].host.address}:7070"

    def _begin_lock(self, lock: str) -> None:
        folder = self.folder / "locks"

        def hosts(name: str, count: int) -> list[Host]:
            return [self.network.add(f"{name}{n}") for n in range(count)]

        def places(found: list[servers.Server], port: int) -> str:
            return ",".join(f"{each.host.address}:{port}" for each in found)

        found: list[servers.Server] = []
        match lock:
            case "redis" | "coordinator":
                found = [servers.redis(self.network.add("redis"), folder / "redis")]
                self._lock = f"redis://{places(found, 6379)}/0"
            case "sentinel":
                found = servers.sentinel(hosts("redis", 3), folder)
                self._lock = f"redis+sentinel://{places(found[1::2], 26379)}/{servers.SERVICE}"
            case "cluster":
                found = servers.redis_cluster(hosts("redis", 6), folder)
                self._lock = f"redis+cluster://{places(found, 6379)}"
                self._once = lambda: servers.redis_cluster_made(self._home, found)
            case "zookeeper" | "neighbours":
                found = servers.zookeeper(hosts("zk", 3), folder)
                self._lock = f"zk://{places(found, 2181)}/locks"
            case "dynamodb":
                found = [servers.dynamodb(self.network.add("dynamodb"), folder)]
                endpoint = f"http://{found[0].host.address}:8000"
                self._lock = f"dynamodb://{servers.REGION}/locks?endpoint={endpoint}"
            case "object":
                self._lock = f"s3://{BUCKET}/locks"
        self.servers += found

    def begin(self) -> None:
        """Start the servers, make the tables, start the writers."""
        for each in self.servers:
            each.start()
        for each in self.servers:
            each.wait_ready()
        self._once()
        self._at_home("create", self.url, self._lock, *(["hudi"] if self._beside else []))
        if self._coordinator is not None:
            self._coordinator.start()
            self._coordinator.wait_ready()
            self.servers.append(self._coordinator)
        for writer in (self.writers[0], *self.mortals):
            writer.start()

    def blow(self, seconds: float) -> Report:
        """Let faults befall for so long, one or two at a time; then a calm, the end of all writers, and the judgement.

        After each the next one waits for a commit of anybody, so that the time to it is known whatever it is.
        """
        luck, log, recoveries, findings = random.Random(self.seed), list[Fault](), list[Recovery](), list[str]()
        samples: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
        since = time.monotonic()
        self._wait_for_commit(since)
        while time.monotonic() < since + seconds:
            befell = self._befall(luck, samples)
            log += befell
            healed = max(each.ended for each in befell)
            until = self._wait_for_commit(healed)
            recoveries.append(recovery(list(self.events), befell, until))
            if recoveries[-1].until_commit_s is None:
                named = " and ".join(f"{each.kind} ({each.whom})" for each in befell)
                findings.append(f"no commit within {COMMIT_S_MAX:g} s after {named} had healed")
            self._pass(luck.uniform(0.5, 3.0), samples)
        calm = time.monotonic()
        self._pass(self._calm_s, samples)
        for writer in (self.writers[0], *self.mortals):
            writer.kill()
        ended = time.monotonic()
        for server in self.servers:
            server.revive()
        told = json.loads(self._at_home("rows", self.url).splitlines()[-1])
        events = sorted(self.events, key=lambda each: each["at"])
        findings += [*broken(events, told["tables"]), *told["damage"]]
        silence, when = longest_silence(events, calm, ended)
        if silence > LEASE_S + 15.0:
            findings.append(f"{silence:.1f} s without a commit, {when - calm:.1f} s after the last fault had healed")
        return Report(events, log, recoveries, findings, _figures(events, log, recoveries, samples))

    def _befall(self, luck: random.Random, samples: dict[str, list[tuple[float, int, int]]]) -> list[Fault]:
        """Let one or two faults befall, and heal; return them."""
        log, pending = list[Fault](), list[tuple[float, float, str, str, faults.Heal]]()  # the end first
        for again in range(2 if luck.random() < 0.3 else 1):
            kind, whom, lasts_s, begin = faults.draw(self, luck, but=pending[0][2] if pending else "")
            if again:
                self._pass(luck.uniform(0.0, 3.0), samples, revive=False)
            now = time.monotonic()
            with suppress(subprocess.CalledProcessError):  # a disk that is being written to stays writable
                pending.append((now + lasts_s, now, kind, whom, begin()))
        # The full disk last: on one that is read-only no room can be made.
        for end, began, kind, whom, heal in sorted(pending, key=lambda each: (each[2] == "disk full", each[0])):
            self._pass(end - time.monotonic(), samples, revive=False)
            heal()
            log.append(Fault(kind, whom, began, time.monotonic()))
        self._revive()
        return log or [Fault("none", "nobody", time.monotonic(), time.monotonic())]

    def _revive(self) -> None:
        for each in (*self.servers, self.writers[0], *self.mortals):
            each.revive()

    def _pass(self, seconds: float, samples: dict[str, list[tuple[float, int, int]]], *, revive: bool = True) -> None:
        """Let time pass, and look at what those who live long use."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            pids = {"writer": self.writers[0].process.pid}
            if self._coordinator is not None and self._coordinator.pid is not None:
                pids[f"server {self._coordinator.pid}"] = self._coordinator.pid
            for name, pid in pids.items():
                if not samples[name] or now > samples[name][-1][0] + _SAMPLE_S:
                    with suppress(OSError):
                        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
                        samples[name].append((now, resident, len(os.listdir(f"/proc/{pid}/fd"))))
            if revive:
                self._revive()
            time.sleep(min(0.2, max(end - time.monotonic(), 0.0)))  # the pace at which faults begin and end

    def _wait_for_commit(self, since: float) -> float:
        """Return when somebody has committed since then, or has not for too long; return the moment."""
        give_up = time.monotonic() + COMMIT_S_MAX
        while time.monotonic() < give_up and not any(at >= since for at in commits(self.events[-200:])):
            self._revive()
            time.sleep(0.05)  # the pace at which events are looked at
        return time.monotonic()

    def close(self) -> None:
        """End everything, and give back what the machine has lent."""
        for writer in (self.writers[0], *self.mortals):
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


def _figures(
    events: list[dict[str, Any]], log: list[Fault], recoveries: list[Recovery],
    samples: dict[str, list[tuple[float, int, int]]],
) -> dict[str, Any]:  # fmt: skip
    known = [each.until_commit_s for each in recoveries if each.until_commit_s is not None]
    used = {}
    for name, seen in samples.items():
        memory, descriptors = growth([each[1] for each in seen]), growth([each[2] for each in seen])
        if memory is not None and descriptors is not None:
            used[name] = {"minutes": round((seen[-1][0] - seen[0][0]) / 60, 1), "megabytes": seen[-1][1] >> 20,
                          "descriptors": seen[-1][2], "memory_growth": round(memory, 3),
                          "descriptors_growth": round(descriptors, 3)}  # fmt: skip
    return {
        "operations": dict(Counter(f"{each['op']} {each['told']}" for each in events if each["told"] != "begins")),
        "commits": sum(1 for _ in commits(events)),
        "faults": dict(Counter(each.kind for each in log)),
        "until_the_next_commit_s": quantiles(known),
        "longest_without_a_commit_s": quantiles([each.silence_s for each in recoveries]),
        "used": used,
    }
