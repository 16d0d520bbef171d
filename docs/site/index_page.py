"""The README as the page of a package index, where links by path lead nowhere; `setup.py` makes it."""

from __future__ import annotations

import re

_IMAGE = re.compile(r"^!\[([^\]]*)\]\(([^)\s:]+)\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def index_page(text: str, home_url: str) -> str:
    """Return the README with links that work anywhere.

    Args:
        text: in Markdown, with links by path.
        home_url: of the repository, whose files are below ``/blob/main/``; if it is empty, such links become text,
            and images are left out.
    """

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match[0]
        return f"[{words}]({home_url.rstrip('/')}/blob/main/{target})" if home_url else words

    raw = f"![\\1]({home_url.rstrip('/')}/raw/main/\\2)\n\n" if home_url else ""
    parts = _FENCE.split(_IMAGE.sub(raw, text))  # every second one is a block of code
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))


def project_urls(home_url: str) -> dict[str, str]:
    """Return the links beside that page; none without a home."""
    if not home_url:
        return {}
    files = f"{home_url.rstrip('/')}/blob/main"
    return {
        "Source": home_url,
        "Documentation": f"{files}/README.md#what-to-read-next",
        "Changelog": f"{files}/CHANGELOG.md",
        "Security": f"{files}/SECURITY.md",
    }
