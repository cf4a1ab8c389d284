"""Faults on purpose in our own code: a check that passes on such a variant would see nothing.

The one place where a test may replace code. Everything else is handed in: stores with faults, environments, sizes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

Variant = list[AbstractContextManager[Any]]


def instead(owner: Any, name: str, code: Any) -> AbstractContextManager[Any]:
    """While it is entered, the owner (a class or module) has this code under the name of a rule that it keeps."""
    return mock.patch.object(owner, name, code)


def answering(owner: Any, name: str, answer: Any = None) -> AbstractContextManager[Any]:
    """The same with code that always gives this answer."""
    return instead(owner, name, lambda *_given, **_named: answer)
