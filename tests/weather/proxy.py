"""A proxy in front of a server, which delays, cuts and refuses as a file tells it.

    python -m tests.weather.proxy HOST:PORT TARGET:PORT FILE SPEECH      SPEECH: s3, dynamodb, or tcp for any other

The file holds ``{"ill": NAME, "share": 0.5}``, or nothing where all is well, and is read again for each request: `ILLS` has
the names. Of HTTP it passes on one request a connection, so that an answer ends where its connection does.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import xml.sax.saxutils
from contextlib import suppress
from pathlib import Path

ILLS = {
    "slow answers": ("s3", "dynamodb", "tcp"),
    "lost answers": ("s3", "dynamodb", "tcp"),  # of requests that were carried out
    "errors afterwards": ("s3", "dynamodb"),  # 500 for a request that was carried out
    "errors": ("s3", "dynamodb"),  # 500 for one that was not
    "throttled": ("s3", "dynamodb"),
    "expired credentials": ("s3", "dynamodb"),
}
_SLOW_S = 2.0
_CHUNK = 1 << 16
# (HTTP status, code, words) as the services say it.
_S3 = {
    "errors": (500, "InternalError", "We encountered an internal error. Please try again."),
    "throttled": (503, "SlowDown", "Please reduce your request rate."),
    "expired credentials": (403, "ExpiredToken", "The provided token has expired."),
}
_DYNAMODB = {
    "errors": (500, "InternalServerError", "The request processing has failed."),
    "throttled": (400, "ProvisionedThroughputExceededException", "The level of configured throughput was exceeded."),
    "expired credentials": (400, "ExpiredTokenException", "The security token included in the request is expired"),
}
_REFUSALS = {"s3": _S3, "dynamodb": _DYNAMODB, "tcp": {}}


class Proxy:
    """One proxy. ``speech`` is what its server speaks."""

    def __init__(self, target: tuple[str, int], control: Path, speech: str) -> None:
        self._target, self._control, self._speech = target, control, speech
        self._luck = random.Random()

    def _ill(self) -> str:
        """Return what befalls this request; "" if nothing does."""
        with suppress(OSError, ValueError):
            told = json.loads(self._control.read_text())
            if self._luck.random() < told["share"]:
                return str(told["ill"])
        return ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await (self._relay if self._speech == "tcp" else self._request)(reader, writer)
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head[:-4].split(b"\r\n")
            fields = {
                name.strip().lower(): value.strip() for name, _, value in (each.partition(b":") for each in lines[1:])
            }
            body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
            ill = self._ill()
            if ill in _REFUSALS[self._speech]:
                writer.write(self._refusal(ill, head=lines[0].startswith(b"HEAD ")))
                await writer.drain()
                continue
            kept = [each for each in lines if not each.lower().startswith(b"connection:")]
            answer = await self._answer(b"\r\n".join([*kept, b"Connection: close", b"", b""]) + body)
            if ill == "slow answers":
                await asyncio.sleep(self._luck.uniform(0.0, _SLOW_S))
            if ill == "lost answers":
                return
            if ill == "errors afterwards":
                answer = self._refusal("errors", head=lines[0].startswith(b"HEAD "))
            writer.write(answer)
            await writer.drain()
            if ill != "errors afterwards":
                return

    async def _answer(self, request: bytes) -> bytes:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        try:
            far_writer.write(request)
            await far_writer.drain()
            return await far_reader.read()
        finally:
            far_writer.close()

    def _refusal(self, ill: str, *, head: bool) -> bytes:
        status, code, words = _REFUSALS[self._speech][ill]
        if self._speech == "s3":
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{xml.sax.saxutils.escape(words)}</Message></Error>"
            kind = "application/xml"
        else:
            text = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": words})
            kind = "application/x-amz-json-1.0"
        body = text.encode()
        fields = f"HTTP/1.1 {status} {code}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return fields.encode() + (b"" if head else body)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        ways = [
            asyncio.ensure_future(self._copy(reader, far_writer, answers=False)),
            asyncio.ensure_future(self._copy(far_reader, writer, answers=True)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in (*ways, far_writer):
            each.cancel() if isinstance(each, asyncio.Future) else each.close()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        with suppress(OSError):
            while body := await source.read(_CHUNK):
                ill = self._ill() if answers else ""
                if ill == "slow answers":
                    await asyncio.sleep(self._luck.uniform(0.0, _SLOW_S))
                if ill == "lost answers":
                    return
                sink.write(body)
                await sink.drain()


async def main(listen: str, target: str, control: str, speech: str) -> None:
    """Serve until the process ends."""
    host, _, port = listen.rpartition(":")
    far, _, far_port = target.rpartition(":")
    proxy = Proxy((far, int(far_port)), Path(control), speech)
    server = await asyncio.start_server(proxy.serve, host, int(port), limit=1 << 20)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
