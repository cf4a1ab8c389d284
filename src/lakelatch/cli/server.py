"""``lakelatch server``: a dashboard, an API and metrics of some tables, until it is stopped.

JSON, once it listens: ``tables`` (names), ``url``, and ``token`` if one was made.
"""

from __future__ import annotations

from contextlib import ExitStack

import typer

from ..errors import ConfigError, LakeLatchError
from .output import print_json, say


def server(
    tables: list[str],
    *,
    host: str,
    port: int,
    token_file: str,
    tls: tuple[str, str],
    plain_http: bool,
    every_s: float,
    json: bool,
) -> None:
    """Serve until SIGINT or SIGTERM."""
    try:
        from .. import server as room
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"the server needs {e.name}, which is not installed; run pip install 'lakelatch[server]'"
        ) from e
    import lakelatch

    from ..locks import metrics

    address = room.Address(host, port, *tls, plain=plain_http)
    address.refuse_unsafe()
    access = room.Access.from_file(token_file) if token_file else room.Access.made()
    with ExitStack() as stack:
        watched = {}
        for name, url in room.named(tables).items():
            table = lakelatch.open(url)
            # Before `Watched`, which may refuse the table.
            stack.callback(table.close)
            try:
                watched[name] = room.Watched(name, table)
            except LakeLatchError as e:
                e.add_note(f"nothing is served; leave out --table {name} or adopt it")
                raise
        application = room.Application(watched, access, every_s=every_s, secure=address.secure)

        def listening(url: str) -> None:
            if json:
                # A token from a file is the user's secret and is never printed; a generated one can be learnt only
                # here.
                print_json({"tables": [*watched], "url": url, "token": None if token_file else access.token})
                return
            say(f"serving {', '.join(watched)} at {url}")
            if token_file:
                say(f"the dashboard: {url}/?token=, and the token from {token_file}")
            else:
                say(f"the dashboard, printed only now: {url}/?token={access.token}")

        metrics.enable()
        try:
            room.Server(application, address, listening=listening).run_here()
        finally:
            metrics.disable()
    typer.echo("stopped", err=True)
