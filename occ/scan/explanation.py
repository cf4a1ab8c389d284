"""The explanation of a scan: the files that it reads or leaves out, for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """One file of a scan's state, and the reason why it is read or left out."""

    path: str
    read: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The files of a scan's state; ``print`` shows them."""

    files: tuple[ScannedFile, ...]

    @property
    def read(self) -> tuple[ScannedFile, ...]:
        """The files that are read."""
        return tuple(each for each in self.files if each.read)

    @property
    def pruned(self) -> tuple[ScannedFile, ...]:
        """The files that are left out."""
        return tuple(each for each in self.files if not each.read)

    def __str__(self) -> str:
        lines = [f"  {'read  ' if each.read else 'pruned'}  {each.path}: {each.why}" for each in self.files]
        return "\n".join([f"{len(self.read)} of {len(self.files)} file groups are read", *lines])
