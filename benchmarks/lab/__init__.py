"""The contention lab: compares locks, strategies and other systems with given writers on a given store (docs/bench.md)."""

from .results import Cell, Results, Spread, compare, read
from .runner import Contender, Plan, Progress, contenders, measure
from .scenario import Role, Scenario, load, names

__all__ = [
    "Cell",
    "Contender",
    "Plan",
    "Progress",
    "Results",
    "Role",
    "Scenario",
    "Spread",
    "compare",
    "contenders",
    "load",
    "measure",
    "names",
    "read",
]
