"""The JVMs that tests start, which live for seconds."""

from __future__ import annotations

import os
from pathlib import Path

CLASSES = Path(__file__).parents[1] / ".cache/tools/spark_classes/classes.jsa"


def short_lived() -> None:
    """Set the options that ``java`` takes from the environment, unless they are set; programs that start one inherit them.

    The second compiler, a collector with threads of its own and a check of byte code cost more than they save. A JVM with other
    jars ignores the archive of Spark's classes (scripts/tools/spark_classes.sh), and without ``-Xlog:disable`` would print so.
    """
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    if CLASSES.exists():  # where it is named and missing, Java does not use its own either
        options += f" -Xlog:disable -XX:ArchiveRelocationMode=0 -XX:SharedArchiveFile={CLASSES}"
    os.environ.setdefault("JDK_JAVA_OPTIONS", options)
