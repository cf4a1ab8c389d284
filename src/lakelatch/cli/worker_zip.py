"""``lakelatch worker-zip``: the package and its imports, for Spark workers whose Python has pyarrow and numpy only.

It is an archive that Spark unpacks, and not one for ``--py-files``: from a zip Python imports no compiled module, and
the S3 client is one.

JSON: ``file``, ``python`` (the version it is for), ``settings`` of Spark by name.
"""

from __future__ import annotations

import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..errors import InputError
from .options import Json
from .output import print_json, say

FOLDER = "lakelatch-worker"  # where Spark unpacks it, beside the executor
_NEEDED = ("fastavro", "sqlglot", "tenacity")
_OF_CLOUD = ("obstore", "typing_extensions")
_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same content gives the same file


def worker_zip(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The archive to write; it ends with .zip.")],
    *,
    json: Json = False,
) -> None:
    """Write an archive with which Spark workers run that have pyarrow and numpy, and not this package.

    Of this Python and its platform: the workers' have to be the same.
    """
    target = Path(file)
    if target.suffix != ".zip":
        raise InputError(f"{file} does not end with .zip, by which Spark knows what to unpack; name it so")
    if target.is_dir() or not target.resolve().parent.is_dir():
        raise InputError(f"{file} cannot be written: it is a folder, or its folder is not there")
    # Sorted, so that the same content gives the same archive.
    known = dict(sorted(_files()))
    # Written aside and renamed, so that Spark never unpacks half an archive.
    written = target.with_name(f".{target.name}.new")
    try:
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in known.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
        written.replace(target)
    except OSError as e:
        raise InputError(f"{file} was not written: {e.strerror or e}") from e
    finally:
        written.unlink(missing_ok=True)
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sysconfig.get_platform()}"
    names = ", ".join(name for name in (*_NEEDED, *_OF_CLOUD) if _is_there(name))
    settings = {"spark.archives": f"{file}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}
    if json:
        print_json({"file": file, "python": python, "settings": settings})
        return
    say(f"lakelatch {__version__} with {names}, for {python}; the workers need pyarrow and numpy besides", err=True)
    typer.echo(" ".join(f"--conf {name}={value}" for name, value in settings.items()))


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the name in the archive and the path of each file."""
    package = Path(__file__).parents[1]
    for path in _below(package):
        yield f"lakelatch/{path.relative_to(package).as_posix()}", path
    for name in (*_NEEDED, *_OF_CLOUD):
        if not _is_there(name):
            continue
        for each in distribution(name).files or ():
            path = Path(str(each.locate()))
            # A distribution lists its scripts as ../../bin/NAME, outside of the importable folder.
            if ".." not in each.parts and path.suffix != ".pyc" and path.is_file():
                yield each.as_posix(), path


def _below(folder: Path) -> Iterator[Path]:
    # In the source tree the parts are links, which a glob does not follow.
    for path in folder.iterdir():
        if path.is_dir():
            if path.name != "__pycache__":
                yield from _below(path)
        else:
            yield path


def _is_there(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
