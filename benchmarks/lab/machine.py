"""The machine and versions on which figures were taken: figures are comparable only there."""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def facts(packages: Iterable[str], others: Mapping[str, str]) -> dict[str, Any]:
    """Return CPU, memory, kernel, Python, load, and versions of packages and of ``others``, which are no packages."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_version()} {platform.python_implementation()}",
        # A Python that was built with profile-guided optimization is a third faster.
        "optimized_python": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "load": load(),
        "versions": {
            name: others.get(name) or _version(name) for name in sorted({"lakelatch", "pyarrow", *packages, *others})
        },
    }


def load() -> float:
    """Return the number of runnable processes, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
