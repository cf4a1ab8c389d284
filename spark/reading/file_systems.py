"""Find out if Spark's own scan reaches the files of a table, and by which paths and options."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...storage import Store, is_far

_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_log = logging.getLogger("lakelatch.spark")


@dataclass(frozen=True)
class Reach:
    """The access of Spark's own scan to the objects of a store.

    Attributes:
        options: Hadoop's, for the files of one scan; they may hold keys, and are in no property of the session.
    """

    store: Store
    options: dict[str, str] = field(repr=False)
    scheme: str = ""

    def uris(self, paths: Sequence[str]) -> list[str]:
        """Return the addresses of objects."""
        found = [self.store.uri(path) for path in paths]
        return [each.replace("s3a:", f"{self.scheme}:", 1) for each in found] if self.scheme else found


def reach(spark: Any, store: Store) -> Reach | None:
    """Return the access to a store; None when Spark has no file system for it, or none that takes the store's options.

    Hadoop keeps a file system for each scheme and bucket, with the keys of its first user. So a store that was opened with
    keys of its own has a scheme of its own, and the session's other tables keep theirs.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    options = store.hadoop_options()
    if options is None or not is_far(store.url):  # every Spark reads a local disk
        return None if options is None else Reach(store, {})
    scheme = ""
    if options:
        scheme = f"s3a-{hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()[:12]}"
        options = {**options, f"fs.{scheme}.impl": _S3A}
    jvm = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConfWithOptions(jvm.PythonUtils.toScalaMap(dict(options)))
    kind = scheme or store.uri("").partition(":")[0]
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(kind, conf)
    except Py4JJavaError:
        version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        _log.info(
            "Spark has no file system for %s, so Python workers read its files; Spark's own scan is faster, and for S3 wants "
            "spark.jars.packages=org.apache.hadoop:hadoop-aws:%s",
            store.url,
            version,
        )
        return None
    return Reach(store, dict(options), scheme)
