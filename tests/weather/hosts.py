"""Hosts: network namespaces on a bridge of their own, which no packet leaves.

A cut is a wrong hardware address for a neighbour: packets to it leave and nobody takes them, in one direction, as on a
network that loses them. A blackhole route would tell the sender.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_NOBODY = "02:de:ad:00:00:01"
_NETWORK = "10.222.0"


def unavailable() -> str:
    """Return why no namespaces can be made here; "" if they can."""
    try:
        probe = f"llw{os.getpid()}x"
        subprocess.run(["ip", "netns", "add", probe], check=True, capture_output=True, text=True)
        subprocess.run(["ip", "netns", "del", probe], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        return "iproute2 is not installed"
    except subprocess.CalledProcessError as e:
        return f"no network namespace can be made: {e.stderr.strip()}"
    return ""


class Host:
    """One host of a network."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name, self.namespace, self.address = name, namespace, address

    def start(
        self,
        command: Sequence[str],
        *,
        stdout: IO[bytes] | int,
        stderr: IO[bytes] | int,
        environment: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        """Start a program on it."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *command],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=os.environ | environment,
        )  # fmt: skip


class Network:
    """Hosts that reach each other, and cuts between them."""

    def __init__(self) -> None:
        self._prefix = f"llw{os.getpid()}"
        self._switch = f"{self._prefix}-switch"
        self.hosts: dict[str, Host] = {}
        self._made: list[str] = []
        self._cuts = Counter[tuple[str, str]]()
        self._make(self._switch)
        self._inside(self._switch, "ip", "link", "add", "name", "bridge", "type", "bridge")
        self._inside(self._switch, "ip", "link", "set", "bridge", "up")

    def add(self, name: str) -> Host:
        """Make a host."""
        number = len(self.hosts) + 1
        host = Host(name, f"{self._prefix}-{name}", f"{_NETWORK}.{number}")
        self._make(host.namespace)
        port = f"port{number}"
        _ip("link", "add", "name", "eth0", "netns", host.namespace, "type", "veth",
            "peer", "name", port, "netns", self._switch)  # fmt: skip
        self._inside(self._switch, "ip", "link", "set", port, "master", "bridge", "up")
        self._inside(host.namespace, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        self._inside(host.namespace, "ip", "link", "set", "eth0", "up")
        self.hosts[name] = host
        return host

    def cut(self, sender: Host, receiver: Host) -> None:
        """Lose all packets from one to the other, until each cut is mended."""
        self._cuts[sender.name, receiver.name] += 1
        self._inside(
            sender.namespace, "ip", "neigh", "replace", receiver.address,
            "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent",
        )  # fmt: skip

    def mend(self, sender: Host, receiver: Host) -> None:
        """End that, unless it was cut twice."""
        self._cuts[sender.name, receiver.name] -= 1
        if not self._cuts[sender.name, receiver.name]:
            self._inside(sender.namespace, "ip", "neigh", "del", receiver.address, "dev", "eth0")

    def close(self) -> None:
        """Take all hosts away, and end what runs on them."""
        for namespace in reversed(self._made):
            told = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
            for pid in told.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            with suppress(OSError):  # the others go nevertheless
                _ip("netns", "del", namespace)
        self._made.clear()

    def _make(self, namespace: str) -> None:
        _ip("netns", "add", namespace)
        self._made.append(namespace)
        self._inside(namespace, "ip", "link", "set", "lo", "up")

    def _inside(self, namespace: str, *command: str) -> None:
        _ip("netns", "exec", namespace, *command)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def disk(folder: Path, megabytes: int) -> None:
    """Mount a disk of that size there; it ends with `umount`."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "lakelatch", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    """Mount it again ``ro`` or ``rw``."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def umount(folder: Path) -> None:
    """Take the disk away."""
    subprocess.run(["umount", "-l", str(folder)], check=False)
