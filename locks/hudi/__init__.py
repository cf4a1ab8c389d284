"""Hudi's own lock options and the keys that its providers derive."""

from .options import PREFIX, table_settings

__all__ = ["PREFIX", "table_settings"]
