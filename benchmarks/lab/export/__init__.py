"""Histories of runs in the formats of other tools, so that others can judge with their own.

`perfetto`: lanes at https://ui.perfetto.dev; `hdr`: percentiles, with any reader of HdrHistogram logs; `elle`: isolation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ..operations import Operation
from ..results import Results

__all__ = ["FORMATS", "export"]

# Turns a run into a file's bytes; None if the run has nothing for the format.
Make = Callable[[list[Operation], dict[str, Any]], bytes | None]
# format -> (module of this room, suffix of its files)
FORMATS = {"perfetto": (".perfetto", "pftrace"), "hdr": (".hdr", "hlog"), "elle": (".elle", "edn")}


def export(results: Results, formats: Sequence[str] = ()) -> tuple[list[Path], list[str]]:
    """Write a file for each run and format into the folder ``exports``; return the paths, and what was left out and why.

    Raises:
        ConfigError: there is no such format, or one requested by name lacks its package.
    """
    if unknown := [each for each in formats if each not in FORMATS]:
        raise ConfigError(f"there is no format {unknown[0]!r}; there are {', '.join(FORMATS)}")
    made: list[Path] = []
    left_out: list[str] = []
    folder = results.folder / "exports"
    for name in formats or FORMATS:
        module, suffix = FORMATS[name]
        try:
            make: Make = import_module(module, __package__).make
        except ModuleNotFoundError as e:
            words = f"{name} needs {e.name}: pip install 'lakelatch[bench]'"
            if formats:
                raise ConfigError(words) from e
            left_out.append(words)
            continue
        empty = 0
        for run in results.runs:
            operations, facts = results.history(run)
            body = make(operations, run | facts) if operations else None
            if body is None:
                empty += 1
                continue
            folder.mkdir(exist_ok=True)
            number = Path(run["folder"]).name
            path = folder / f"{number}-{_safe(run['scenario'])}-{run['writers']}-{_safe(run['system'])}.{suffix}"
            path.write_bytes(body)
            made.append(path)
        if empty:
            left_out.append(f"{empty} runs have nothing for {name}")
    return made, left_out


def _safe(name: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in name)[:40]
