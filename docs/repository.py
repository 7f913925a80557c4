"""A hook of mkdocs for links from pages to other files of the repository.

In the repository a reader can follow such a link. The site does not have these files, so there the link becomes text,
with the path as its tooltip. A link to a file that does not exist fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parent.parent


def on_page_markdown(markdown: str, /, *, page: Any, **_: Any) -> str:
    """Return the text of a page with these links replaced."""
    here = ROOT / "docs" / Path(page.file.src_uri).parent

    def replace(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = (here / target).resolve()
        if path.is_relative_to(ROOT / "docs"):
            return link[0]
        if not path.is_relative_to(ROOT) or not path.exists():
            raise PluginError(f"{page.file.src_uri} links to {target}, which does not exist")
        breakable = text.replace("_", "_<wbr>")
        return f'<span title="{path.relative_to(ROOT).as_posix()}">{breakable}</span>'

    return re.sub(r"\[([^]]+)\]\((\.\./[^)\s]+)\)", replace, markdown)
