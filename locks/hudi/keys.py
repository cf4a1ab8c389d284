"""The lock keys that Hudi derives from a table's path, so that its JVM writers and ours contend for one lock.

Hudi takes xxHash64 of the base path with its own seed, a Java int widened to 64 bits, as 16 upper-case hex digits.
"""

from __future__ import annotations

import re

from ...errors import ConfigError

_SEED = 0xFFFFFFFFDABADABA


def implicit_key(base_path: str) -> str:
    """Return the key for a table at ``base_path``, spelled as JVM writers configure it (a final ``/`` counts)."""
    try:
        import xxhash
    except ModuleNotFoundError as e:
        raise ConfigError(
            "Hudi's implicit lock keys need xxhash; run pip install 'lakelatch[zookeeper]' or 'lakelatch[dynamodb]'",
        ) from e
    path = re.sub("^s3a://", "s3://", base_path, flags=re.IGNORECASE)
    return xxhash.xxh64_hexdigest(path.encode(), seed=_SEED).upper()
