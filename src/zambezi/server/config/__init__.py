"""The configuration of a server: `zambezi.toml`, checked before anything is started.

`settings` declares and reads it, `consistency` finds settings that contradict each other, `environment` compares them
with this machine, `lines` finds the line of a key, and `quantity` reads sizes and times.
"""

from __future__ import annotations

from zambezi.server.config.settings import Config, ConsoleConfig, JournalConfig, Rule, parse, place, read, show

__all__ = ["Config", "ConsoleConfig", "JournalConfig", "Rule", "parse", "place", "read", "show"]
