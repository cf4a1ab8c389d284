"""What docs/locks.md says of the code is so."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from lakelatch.locks import open_provider, registry
from lakelatch.locks.core import metrics

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/locks.md").read_text()
EXAMPLES = (
    "memory://name",
    "file:///shared/locks",
    "zk://a:2181,b:2181/hudi",
    "redis://host:6379/0",
    "rediss://host",
    "redis+sentinel://a,b/service",
    "redis+cluster://a,b",
    "dynamodb://us-east-1/locks",
    "s3://bucket/locks",
    "gs://bucket/locks",
    "az://container/locks",
)


def providers_table() -> str:
    """From the providers themselves, none of which connects to anything; a line for those that promise the same."""
    lines = [
        "| URL | `pip install` | In order | Tokens survive a restart | Tokens can be lifted | Leases per process |",
        "|---|---|---|---|---|---|",
    ]
    alike: dict[str, list[str]] = {}
    for url in EXAMPLES:
        scheme = url.partition(":")[0]
        extra = registry._BUILT_IN[scheme][2]
        with open_provider(url) as locks:
            durable = "as configured" if scheme.startswith("redis") else "yes" if locks.durable_tokens else "no"
            promises = (
                f"{f'`lakelatch[{extra}]`' if extra else 'nothing'} | {'yes' if locks.fair else 'nearly'} "
                f"| {durable} | {'yes' if locks.lifts_tokens else 'no'} | {getattr(locks, 'max_leases', None) or 'memory'}"
            )
        alike.setdefault(promises, []).append(f"`{url}`")
    lines += [f"| {', '.join(urls)} | {promises} |" for promises, urls in alike.items()]
    return "\n".join(lines)


def test_every_scheme_has_its_example() -> None:
    assert {url.partition(":")[0] for url in EXAMPLES} == set(registry._BUILT_IN)


def test_the_table_of_providers_is_that_of_the_code() -> None:
    assert providers_table() in DOCUMENT, providers_table()


def test_every_metric_is_in_the_table() -> None:
    collected = CollectorRegistry()
    metrics.enable(collected)
    try:
        names = {metric.name for metric in collected.collect()}
    finally:
        metrics.disable()
    assert {name.removesuffix("_total") for name in re.findall(r"`(lakelatch_lock_\w+)`", DOCUMENT)} == names
