"""A hook of mkdocs: links from pages to files of the repository that are not pages.

In the repository a reader follows them. The site has no such files, so there they are words, which tell the path when
pointed at. A link to a file that does not exist ends the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parent.parent


def on_page_markdown(markdown: str, /, *, page: Any, **_: Any) -> str:
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
