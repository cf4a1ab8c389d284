"""A lock provider of somebody else, installed as a package of its own."""

from __future__ import annotations

from pathlib import Path

from lakelatch.locks import registry


def installed(folder: Path, **entries: str) -> Path:
    """A folder for ``sys.path`` in which a stranger's package has these entry points."""
    (info := folder / "strangers-1.0.dist-info").mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    told = "\n".join(f"{name} = {value}" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{told}\n")
    return folder
