"""Checks whether a lock service keeps what the protocol needs."""

from .checkup import Verdict, check_up

__all__ = ["Verdict", "check_up"]
