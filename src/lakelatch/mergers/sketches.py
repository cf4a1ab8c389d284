"""Mergers of sketches, which tell about how many distinct values there were in a few kilobytes, however many there are.

``pip install 'lakelatch[sketches]'``. The bytes are those of Apache DataSketches (https://datasketches.apache.org), which
other engines write and read too. HyperLogLog has no merger: its bytes depend on the order of merges.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..arguments import brief
from ..errors import ConfigError, InputError
from .interface import Groups, Laws


@dataclass(frozen=True)
class Theta:
    """The union of theta sketches, of ``2**lg_k`` hashes at most: exact up to so many values."""

    lg_k: int = 12

    def __post_init__(self) -> None:
        if isinstance(self.lg_k, bool) or not isinstance(self.lg_k, int) or not 5 <= self.lg_k <= 26:
            raise InputError(f"theta keeps 2**{brief(self.lg_k)} hashes; say a whole number from 5 to 26")
        _library()

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises unless the column holds bytes."""
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise InputError(f"theta keeps a sketch, and the column holds {kind}; make it binary")
        return Laws(commutative=True, associative=True, idempotent=True)

    def samples(self, kind: pa.DataType) -> list[bytes | None]:  # noqa: ARG002 - bytes, or large ones
        """Return sketches with values in common: an empty one, exact ones and, of few hashes, some beyond."""
        found: list[bytes | None] = [None]
        for first, last in ((0, 0), (0, 1), (0, 2), (1, 3), (0, 64), (32, 96)):
            sketch = _library().update_theta_sketch(self.lg_k)
            for value in range(first, last):
                sketch.update(value)
            found.append(sketch.compact().serialize())
        return found

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return each sketch in its one form: with as many hashes as ours at most, and in order."""
        self.laws(kind)
        return pa.array([None if each is None else self._union([each]) for each in values.to_pylist()], kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the union of each group."""
        some = values.to_pylist()
        parts = ([each for each in some[a:b] if each is not None] for a, b in itertools.pairwise(groups.offsets))
        return pa.array([self._union(part) if len(part) > 1 else next(iter(part), None) for part in parts], values.type)

    def _union(self, sketches: Iterable[bytes]) -> bytes:
        library = _library()
        union = library.theta_union(self.lg_k)
        for each in sketches:
            try:
                union.update(library.compact_theta_sketch.deserialize(each))
            except (ValueError, RuntimeError, IndexError, MemoryError) as e:
                raise InputError(f"theta merges sketches, and these {len(each)} bytes are none: {brief(str(e))}") from e
        found: bytes = union.get_result().serialize()
        return found


def _library() -> Any:
    try:
        return importlib.import_module("datasketches")
    except ImportError as e:
        raise ConfigError(f"theta needs {e.name}; run pip install 'lakelatch[sketches]'") from e
