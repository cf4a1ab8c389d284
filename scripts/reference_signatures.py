"""An extension of griffe, for mkdocs.yml: it shows the API reference as a user needs it.

An optional ``env``, which is for simulators, is left out. A docstring that a decorator completes is shown complete.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

import lakelatch

_COMPLETED = ("like(", "retried(")  # by occ/writing/documented.py


class ReferenceSignatures(griffe.Extension):
    """Leave ``env`` out of signatures and docstrings, and complete the docstrings."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Change one function."""
        if any(str(each.value).startswith(_COMPLETED) for each in func.decorators):
            assert func.docstring is not None
            assert func.parent is not None
            method = getattr(getattr(lakelatch, func.parent.name), func.name)
            func.docstring.value = inspect.getdoc(method) or ""
        if "env" in func.parameters and not func.parameters["env"].required:
            del func.parameters["env"]
            if func.docstring is not None:
                func.docstring.value = re.sub(r"\n +env: .*", "", func.docstring.value)
