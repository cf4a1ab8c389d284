"""What befalls the hosts: each fault begins, lasts, and heals. All are drawn from one seed."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .hosts import Host, remount
from .proxy import ILLS

if TYPE_CHECKING:
    from .run import Weather, Writer

Heal = Callable[[], None]
_WARM = 20  # operations after which a process has imported what it needs: an import without memory is no matter of ours
_CLOCKS_S = (-31_536_000, -3_600, -5, 5, 3_600, 31_536_000)


def draw(weather: Weather, luck: random.Random, but: str = "") -> tuple[str, str, float, Callable[[], Heal]]:
    """Return a fault's kind, whom it befalls, how long it lasts, and what begins it and returns what heals it.

    It is of another kind than ``but``.
    """
    kinds = [each for each in weather.kinds if each != but and KINDS[each][0](weather)] or ["nothing"]
    kind = luck.choice(kinds)
    whom, begin = KINDS[kind][1](weather, luck)
    return kind, whom, luck.choice((0.5, 2.0, 6.0, 12.0)), begin


Drawn = tuple[str, Callable[[], Heal]]


def _cut(weather: Weather, pairs: list[tuple[Host, Host]]) -> Callable[[], Heal]:
    def begin() -> Heal:
        for each in pairs:
            weather.network.cut(*each)

        def heal() -> None:
            for each in pairs:
                weather.network.mend(*each)

        return heal

    return begin


def _partition(weather: Weather, luck: random.Random) -> Drawn:
    """A writer from one server, both ways."""
    one, server = luck.choice(weather.writer_hosts), luck.choice(weather.servers).host
    return f"{one.name} from {server.name}", _cut(weather, [(one, server), (server, one)])


def _one_way(weather: Weather, luck: random.Random) -> Drawn:
    """Requests arrive and answers do not, or the other way round."""
    one, server = luck.choice(weather.writer_hosts), luck.choice(weather.servers).host
    pair = luck.choice([(one, server), (server, one)])
    return f"{pair[0].name} to {pair[1].name}", _cut(weather, [pair])


def _isolate(weather: Weather, luck: random.Random) -> Drawn:
    """A host from all others."""
    host = luck.choice([*weather.writer_hosts, *(each.host for each in weather.servers)])
    others = [each for each in weather.network.hosts.values() if each is not host]
    return host.name, _cut(weather, [pair for each in others for pair in ((host, each), (each, host))])


def _kill_writer(weather: Weather, luck: random.Random) -> Drawn:
    writer = luck.choice(weather.mortals)

    def begin() -> Heal:
        writer.kill()
        return writer.start

    return writer.name, begin


def _pause_writer(weather: Weather, luck: random.Random) -> Drawn:
    writer = luck.choice(weather.mortals)

    def begin() -> Heal:
        process = writer.process  # another one may run when this ends
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)

        def heal() -> None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)

        return heal

    return writer.name, begin


def _kill_server(weather: Weather, luck: random.Random) -> Drawn:
    server = luck.choice(weather.servers)

    def begin() -> Heal:
        server.kill()
        return server.restart

    return server.host.name, begin


def _pause_server(weather: Weather, luck: random.Random) -> Drawn:
    server = luck.choice(weather.servers)

    def begin() -> Heal:
        server.signal(signal.SIGSTOP)
        return lambda: server.signal(signal.SIGCONT)

    return server.host.name, begin


def _forget_server(weather: Weather, luck: random.Random) -> Drawn:
    """The servers of a lock come back with empty disks: one of several, or all."""
    forgetful = [each for each in weather.servers if each.forgets]
    whom = forgetful if luck.random() < 0.5 else [luck.choice(forgetful)]

    def begin() -> Heal:
        for each in whom:
            each.kill()
        for each in whom:
            each.forget()

        def heal() -> None:
            for each in whom:
                each.start()
            for each in whom:
                each.wait_ready()

        return heal

    return ", ".join(each.host.name for each in whom), begin


def _ill(name: str) -> Callable[[Weather, random.Random], Drawn]:
    """A proxy does this to a share of its requests."""

    def drawn(weather: Weather, luck: random.Random) -> Drawn:
        server = luck.choice([each for each in weather.servers if each.proxy and each.proxy.speech in ILLS[name]])
        proxy, share = server.proxy, luck.choice((0.1, 0.5, 1.0))
        assert proxy is not None

        def begin() -> Heal:
            proxy.befall(name, share)
            return lambda: proxy.befall("", 0.0)

        return f"{server.host.name}, {share:.0%} of its requests", begin

    return drawn


def _limit(which: int, least: Callable[[Writer], int]) -> Callable[[Weather, random.Random], Drawn]:
    """A writer gets no more of something than it has."""

    def drawn(weather: Weather, luck: random.Random) -> Drawn:
        writer = luck.choice(weather.mortals)

        def begin() -> Heal:
            pid = writer.process.pid
            if writer.landed < _WARM:
                return lambda: None
            try:
                soft, hard = resource.prlimit(pid, which)
                resource.prlimit(pid, which, (least(writer), hard))
            except (ProcessLookupError, FileNotFoundError):  # it has ended meanwhile
                return lambda: None

            def heal() -> None:
                with suppress(ProcessLookupError):
                    resource.prlimit(pid, which, (soft, hard))

            return heal

        return writer.name, begin

    return drawn


def _clock(weather: Weather, luck: random.Random) -> Drawn:
    """The wall clock of a writer's host steps; its monotonic clock goes on."""
    writer, step_s = luck.choice(weather.mortals), luck.choice(_CLOCKS_S)

    def begin() -> Heal:
        writer.clock.write_text(str(step_s))
        return lambda: _write(writer.clock, "0")

    return f"{writer.name} by {step_s:+d} s", begin


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _disk_full(weather: Weather, luck: random.Random) -> Drawn:
    filler = weather.disk / "filler"

    def begin() -> Heal:
        free = os.statvfs(weather.disk)
        with suppress(OSError), filler.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, max(free.f_bavail * free.f_frsize - (16 << 10), 1))
        return lambda: filler.unlink(missing_ok=True)

    return "the table's disk", begin


def _read_only(weather: Weather, luck: random.Random) -> Drawn:
    def begin() -> Heal:
        remount(weather.disk, "ro")
        return lambda: remount(weather.disk, "rw")

    return "the table's disk", begin


def _always(_: Weather) -> bool:
    return True


def _has_servers(weather: Weather) -> bool:
    return bool(weather.servers)


def _has_ill(name: str) -> Callable[[Weather], bool]:
    return lambda weather: any(each.proxy and each.proxy.speech in ILLS[name] for each in weather.servers)


def _nothing(weather: Weather, luck: random.Random) -> Drawn:
    return "nobody", lambda: lambda: None


KINDS: dict[str, tuple[Callable[[Weather], bool], Callable[[Weather, random.Random], Drawn]]] = {
    "partition": (_has_servers, _partition),
    "one-way partition": (_has_servers, _one_way),
    "isolated host": (_has_servers, _isolate),
    "writer killed": (_always, _kill_writer),
    "writer paused": (_always, _pause_writer),
    "server killed": (_has_servers, _kill_server),
    "server paused": (_has_servers, _pause_server),
    "server forgets": (lambda weather: any(each.forgets for each in weather.servers), _forget_server),
    "clock step": (_always, _clock),
    "disk full": (_always, _disk_full),
    "disk read-only": (lambda weather: not weather.on_s3, _read_only),
    "no descriptors": (_always, _limit(resource.RLIMIT_NOFILE, lambda writer: writer.descriptors)),
    "no memory": (_always, _limit(resource.RLIMIT_AS, lambda writer: writer.memory + (4 << 20))),
    "nothing": (lambda _: False, _nothing),  # drawn where no other can be
    **{name: (_has_ill(name), _ill(name)) for name in ILLS},
}
