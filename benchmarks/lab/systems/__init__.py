"""The systems that the lab measures: each adapter is one small file, found by name, by entry point or by ``module:name``."""

from .interface import Configuration, System
from .registry import GROUP, known, load

__all__ = ["GROUP", "Configuration", "System", "known", "load"]
