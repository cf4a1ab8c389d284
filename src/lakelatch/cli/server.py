"""``lakelatch server``: a dashboard, an API and metrics of some tables, until it is stopped.

JSON, once it listens: ``tables`` (names), ``url``, and ``token`` if one was made.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from ..errors import ConfigError, LakeLatchError
from .options import Json
from .output import print_json, say


def server(
    *,
    table: Annotated[
        list[str],
        typer.Option(metavar="[NAME=]URL", help="A table to watch; its name is the URL's last part. Repeatable."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8047,
    token_file: Annotated[
        str, typer.Option(metavar="FILE", help="Its first line is the token; without it one is made and printed once.")
    ] = "",
    tls_cert: Annotated[
        str, typer.Option(metavar="FILE", help="Certificate chain (PEM); needed beyond loopback.")
    ] = "",
    tls_key: Annotated[str, typer.Option(metavar="FILE", help="The certificate's key (PEM).")] = "",
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Beyond loopback without TLS: a proxy before the server has it.")
    ] = False,
    every_s: Annotated[
        float, typer.Option(min=0.05, max=60, help="Seconds between two looks at a table that somebody watches.")
    ] = 0.5,
    coordinate: Annotated[
        bool, typer.Option("--coordinate", help="Begin and commit for the tables' writers that ask, many at a time.")
    ] = False,
    json: Json = False,
) -> None:
    """Serve a dashboard, an API and Prometheus metrics of some tables, and take writers' markers, until Ctrl-C."""
    try:
        from .. import server as room
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"the server needs {e.name}, which is not installed; run pip install 'lakelatch[server]'"
        ) from e
    import lakelatch

    from ..locks import metrics
    from ..occ.landing import Coordinator

    address = room.Address(host, port, tls_cert, tls_key, plain=plain_http)
    address.refuse_unsafe()
    access = room.Access.from_file(token_file) if token_file else room.Access.made()
    with ExitStack() as stack:
        watched, coordinators = {}, {}
        for name, url in room.named(table).items():
            opened = lakelatch.open(url)
            # Before `Watched`, which may refuse the table.
            stack.callback(opened.close)
            try:
                watched[name] = room.Watched(name, opened)
            except LakeLatchError as e:
                e.add_note(f"nothing is served; leave out --table {name} or adopt it")
                raise
            if coordinate:
                # A handle of its own, which does not wait while the dashboard's reads the log.
                leading = lakelatch.open(url, writer="coordinator", coordinator="")
                stack.callback(leading.close)
                coordinators[name] = Coordinator(leading.session)
        application = room.Application(
            watched, access, every_s=every_s, secure=address.secure, coordinators=coordinators
        )

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
