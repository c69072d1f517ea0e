"""The page at the root: one file, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["page", "page_headers"]

_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@cache
def page() -> str:
    """The page's text."""
    return (files(__package__) / "page.html").read_text(encoding="utf-8")


@cache
def page_headers() -> dict[str, str]:
    """Headers: only the page's own script and style run, and only this server is asked."""
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(page()):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        digests[kind].append(f"'sha256-{digest}'")
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(digests['script'])}",
        f"style-src {' '.join(digests['style'])}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
