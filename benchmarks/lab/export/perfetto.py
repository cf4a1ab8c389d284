"""Perfetto's TrackEvent protobuf: a track for each writer, one below it for the lock, and flows from losers to winners.

The messages are those of https://perfetto.dev/docs/reference/synthetic-track-event, built by the package ``perfetto``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from ..operations import DONE, Operation

_SEQUENCE = 1
_RUN = 1  # the track of the whole run
_BEGIN, _END, _INSTANT = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT
_AT_END, _AT_BEGIN = 0, 1  # at equal times an end comes before a begin


@dataclass(frozen=True, slots=True)
class _Event:
    """One event of a track; ``ns`` since the start of the run."""

    ns: int
    order: int
    kind: int
    track: int
    name: str = ""
    category: str = ""
    flows: tuple[int, ...] = ()
    ends_flows: tuple[int, ...] = ()
    words: str = ""


def make(operations: list[Operation], facts: dict[str, Any]) -> bytes | None:
    """Return the trace of a run; None if nothing was tried."""
    counted = [each for each in operations if not each.warm and each.tries and each.ended]
    if not counted:
        return None
    trace = TraceProtoBuilder()
    _track(trace, _RUN, f"{facts['scenario']}, {facts['writers']} writers, {facts['system']}", 0)
    for writer, role in sorted({(each.writer, each.role) for each in counted}):
        _track(trace, _writer(writer), f"{writer:03d} {role}", _RUN)
        _track(trace, _lock(writer), f"{writer:03d} lock", _writer(writer))
    for event in sorted(_events(counted), key=lambda each: (each.ns, each.order)):
        _put(trace, event)
    return bytes(trace.serialize())


def _writer(number: int) -> int:
    return 10 + 2 * number


def _lock(number: int) -> int:
    return 11 + 2 * number


def _events(operations: list[Operation]) -> Iterator[_Event]:
    commits = {each.commit: each for each in operations if each.commit}
    won: dict[str, list[int]] = {}
    flow = 0
    for each in operations:
        for number, one in enumerate(each.tries, 1):
            winner = commits.get(one.winner) if one.winner else None
            flows: tuple[int, ...] = ()
            if winner is not None and winner is not each:
                flow += 1
                flows = (flow,)
                won.setdefault(winner.name, []).append(flow)
            landed = number == len(each.tries) and each.outcome == DONE
            name = f"{each.work}, attempt {number}" if len(each.tries) > 1 else each.work
            category = "landed" if landed else "lost"
            yield from _slice(
                _writer(each.writer), one.began, one.ended, name, category, flows, one.reason or each.reason
            )
        for hold in each.holds:
            yield from _slice(_lock(each.writer), hold.asked, hold.granted, "waits", "waits")
            yield from _slice(_lock(each.writer), hold.granted, hold.released or each.ended, "holds", "held")
    for each in operations:
        if each.name in won:
            # A flow leads from an earlier event to a later one: the loser had begun before the winner committed.
            yield _Event(
                _ns(each.ended), _AT_BEGIN, _INSTANT, _writer(each.writer), "won", "won", (), tuple(won[each.name])
            )


def _slice(
    track: int, began: float, ended: float, name: str, category: str, flows: tuple[int, ...] = (), words: str = ""
) -> Iterator[_Event]:
    start = _ns(began)
    yield _Event(start, _AT_BEGIN, _BEGIN, track, name, category, flows, (), words)
    yield _Event(max(_ns(ended), start + 1), _AT_END, _END, track)


def _ns(seconds: float) -> int:
    return max(int(seconds * 1e9), 0)


def _track(trace: Any, number: int, name: str, parent: int) -> None:
    packet = trace.add_packet()
    packet.track_descriptor.uuid = number
    packet.track_descriptor.name = name
    if parent:
        packet.track_descriptor.parent_uuid = parent


def _put(trace: Any, event: _Event) -> None:
    packet = trace.add_packet()
    packet.timestamp = event.ns
    packet.trusted_packet_sequence_id = _SEQUENCE
    packet.track_event.type = event.kind
    packet.track_event.track_uuid = event.track
    if event.name:
        packet.track_event.name = event.name
        packet.track_event.categories.append(event.category)
    packet.track_event.flow_ids.extend(event.flows)
    packet.track_event.terminating_flow_ids.extend(event.ends_flows)
    if event.words:
        note = packet.track_event.debug_annotations.add()
        note.name, note.string_value = "reason", event.words
