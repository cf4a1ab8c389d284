"""An extension of griffe, for mkdocs.yml: the API reference leaves an optional ``env`` out, which is for simulators."""

from __future__ import annotations

import re
from typing import Any

import griffe


class ReferenceSignatures(griffe.Extension):
    """Leave ``env`` out of signatures and of the arguments that docstrings list."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Take it from one function."""
        if "env" in func.parameters and not func.parameters["env"].required:
            del func.parameters["env"]
            if func.docstring is not None:
                func.docstring.value = re.sub(r"\n +env: .*", "", func.docstring.value)
