"""The dashboard: one self-contained page, assembled from three files beside this one."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """The page, and the policy under which a browser runs its script and no other."""

    body: bytes
    policy: str


def page() -> Page:
    """Return the dashboard as it is sent."""
    parts = files(__package__)
    style, script, frame = ((parts / f"dashboard.{kind}").read_text() for kind in ("css", "js", "html"))
    body = frame.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    # The policy names the script and the style by hash, so a browser runs nothing that was injected.
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(body.encode(), policy)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
