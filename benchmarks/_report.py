"""Print what every benchmark begins with: the machine and the versions, so that numbers can be compared or not."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version


def machine(*packages: str) -> dict[str, object]:
    """CPU, cores, memory, kernel, Python and package versions, load before the run."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    found = {}
    for name in ("lakelatch", "pyarrow", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return {
        "cores": os.cpu_count(),
        "memory_mib": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
        "versions": found,
    }


def show(title: str, facts: object) -> None:
    """One line of JSON under a title, for people and programs."""
    print(f"{title}: {json.dumps(facts, default=str)}", flush=True)


def percentile(values: list[float], share: float) -> float:
    """Nearest-rank percentile; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
