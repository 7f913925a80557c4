"""HTML and SVG as text. Every value is escaped, because names and keys come from strangers."""

from __future__ import annotations

import html
from typing import Final

from zambezi.wire.text import printable

LONGEST: Final = 300  # characters of a value; a stranger chooses names


class Markup(str):
    """Text that is HTML already. All other text is escaped when it is put into an element."""

    __slots__ = ()


def escaped(value: object, longest: int = LONGEST) -> Markup:
    """Return a value as HTML: control characters become visible, and a long text is cut.

    >>> escaped("<b>&\\x1b"), escaped(Markup("<b>")), escaped("abcdef", 3)
    ('&lt;b&gt;&amp;\\\\x1b', '<b>', 'abc…')
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(printable(cut(str(value), longest)).replace("\N{REPLACEMENT CHARACTER}", "\\ufffd")))


def cut(text: str, longest: int) -> str:
    """Return the beginning of a text, with an ellipsis if there is more.

    >>> cut("kitchen", 4), cut("kitchen", 7)
    ('kitc…', 'kitchen')
    """
    return text if len(text) <= longest else f"{text[:longest]}…"


def shortened(text: str, longest: int) -> str:
    """Return a text without its middle if it is too long: names of one stream often differ only at the end.

    >>> shortened("readings: kitchen.humidity", 11), shortened("kitchen", 7)
    ('readi…idity', 'kitchen')
    """
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def element(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element. A trailing underscore of an attribute's name is left out, other ones become hyphens.

    >>> element("text", "a < b", x=1.0, text_anchor="end", class_="faint")
    '<text x="1" text-anchor="end" class="faint">a &lt; b</text>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(escaped(child) for child in children)}</{name}>")


def joined(*parts: Markup) -> Markup:
    """Return several pieces of HTML as one."""
    return Markup("".join(parts))


def _attribute(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escaped(value)
