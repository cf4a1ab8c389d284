"""A page: lanes of faults above lanes of writers, and what held."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable

from .run import Report

_WIDTH, _LANE, _LEFT = 1200, 22, 190
_COLOURS = {"landed": "#0a7d4f", "failed": "#b3541e", "unknown": "#6b3fa0", "raw": "#c00"}


def page(title: str, report: Report) -> str:
    """Return the page as HTML."""
    events = [each for each in report.events if each["told"] != "begins"]
    start = min(each["at"] for each in report.events)
    end = max(each["at"] for each in report.events)
    kinds = sorted({each.kind for each in report.faults})
    writers = sorted({each["writer"].partition(".")[0] for each in events})

    def x(at: float) -> float:
        return _LEFT + (at - start) / (end - start) * (_WIDTH - _LEFT - 10)

    lanes = [*kinds, *writers]
    drawn = [
        f'<text x="4" y="{n * _LANE + 15}">{html.escape(lane)}</text>'
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{(n + 1) * _LANE}" y2="{(n + 1) * _LANE}" class="rule"/>'
        for n, lane in enumerate(lanes)
    ]
    for fault in report.faults:
        y = lanes.index(fault.kind) * _LANE + 4
        about = html.escape(f"{fault.whom}, {fault.began - start:.1f} to {fault.ended - start:.1f} s")
        width = max(x(fault.ended) - x(fault.began), 2)
        drawn.append(
            f'<rect x="{x(fault.began):.1f}" y="{y}" width="{width:.1f}" height="14" class="fault"><title>{about}</title></rect>'
        )
    for each in events:
        y = lanes.index(each["writer"].partition(".")[0]) * _LANE
        about = html.escape(
            f"{each['op']} {each['n']} {each['told']}, {each['took']:.2f} s {each.get('error', '')[:200]}"
        )
        high = 8 if each["told"] == "landed" else 14
        drawn.append(
            f'<rect x="{x(each["at"]):.1f}" y="{y + 18 - high}" width="2" height="{high}" fill="{_COLOURS[each["told"]]}">'
            f"<title>{about}</title></rect>"
        )
    held = "".join(f"<li>{html.escape(each)}</li>" for each in report.findings) or "<li>Everything held.</li>"
    legend = " ".join(f'<b style="color:{colour}">&#9632; {told}</b>' for told, colour in _COLOURS.items())
    return f"""<!doctype html><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>body{{font:14px system-ui;margin:24px;max-width:{_WIDTH}px;color:#222;background:#fff}} svg{{width:100%}}
text{{font-size:12px}} .rule{{stroke:#ddd}} .fault{{fill:#d9a400;opacity:.8}} pre{{white-space:pre-wrap}}</style>
<h1>{html.escape(title)}</h1><h2>What held</h2><ul>{held}</ul>
<p>{end - start:.0f} s from left to right. <b style="color:#d9a400">&#9632; fault</b> {legend}</p>
<svg viewBox="0 0 {_WIDTH} {len(lanes) * _LANE + 4}">{"".join(drawn)}</svg>
<h2>Figures</h2><pre>{html.escape(_figures(report))}</pre>
"""


def _figures(report: Report) -> str:
    def lines() -> Iterable[str]:
        for name, value in report.figures.items():
            yield f"{name}: {json.dumps(value)}"

    return "\n".join(lines())
