"""The configuration of a server: `zambezi.toml`, checked before any service starts.

`settings` declares and reads it, `consistency` finds settings that contradict each other, `caution` those that are not
safe, `environment` compares the settings with this machine, `lines` finds the line of a key, and `quantity` parses
sizes and times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.lazy import exports

if TYPE_CHECKING:
    from zambezi.server.config.settings import (
        Config,
        ConsoleConfig,
        JournalConfig,
        MirrorConfig,
        Rule,
        StoreConfig,
        parse,
        place,
        read,
        show,
        value,
    )

__all__ = [
    "Config",
    "ConsoleConfig",
    "JournalConfig",
    "MirrorConfig",
    "Rule",
    "StoreConfig",
    "parse",
    "place",
    "read",
    "show",
    "value",
]

__getattr__ = exports(__name__, dict.fromkeys(__all__, "settings"))
