"""Translate a store's options into those of Hadoop's S3A file system, by which Spark's own scan reads it.

Source of the names: https://hadoop.apache.org/docs/stable/hadoop-aws/tools/hadoop-aws/index.html
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..location import Location

__all__ = ["hadoop_options"]

_NAMES = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "token": "session.token",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "region": "endpoint.region",
    "default_region": "endpoint.region",
}
_IMPLIED = {
    "allow_http",
    "virtual_hosted_style_request",
    "retry_s",
}  # S3A needs no option for these, or has its own below
_PROVIDERS = "org.apache.hadoop.fs.s3a."


def hadoop_options(place: Location) -> dict[str, str] | None:
    """Return S3A's options for the bucket alone, so that they win over the session's and affect no other bucket.

    Empty when the store was given none: S3A then finds credentials as it is configured, or in the same environment
    variables. None for an option that S3A does not have, and for options of GCS and Azure.
    """
    given = {key.removeprefix("aws_"): value for key, value in place.options.items()}
    if place.kind == "s3" and (endpoint := os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")):
        given = {"endpoint": endpoint, **given}  # S3A does not read that variable
    if not given:
        return {}
    if place.kind != "s3" or not given.keys() <= _NAMES.keys() | _IMPLIED:
        return None
    found = {_NAMES[key]: value for key, value in given.items() if key in _NAMES}
    found["path.style.access"] = str(not _true(given, "virtual_hosted_style_request")).lower()
    if "access.key" in found:
        kind = "TemporaryAWSCredentialsProvider" if "session.token" in found else "SimpleAWSCredentialsProvider"
        found["aws.credentials.provider"] = _PROVIDERS + kind
    return {f"fs.s3a.bucket.{place.bucket}.{name}": value for name, value in found.items()}


def _true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() in ("true", "1", "yes", "on", "y", "t")
