"""Who may do what: rules by the name of a client's key, for streams and for topics.

The first rule that names a key counts. Without any rule everybody who may connect may do everything; with rules, a key
that no rule names may do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from zambezi.server.config import Rule


class Rules:
    """The rules of a server.

    >>> rules = Rules([Rule(keys=["sensor-*"], publish=["telemetry"]), Rule(subscribe=["*"])])
    >>> rules.allow("sensor-7", "publish", "telemetry"), rules.allow("sensor-7", "subscribe", "telemetry")
    (True, False)
    >>> rules.allow("ann", "subscribe", "telemetry")
    True
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = list(rules)

    def allow(self, user: str, action: str, name: str) -> bool:
        """Whether a user may `publish` to, `subscribe` to or `create` a stream, `put` to or `sub` a topic."""
        if not self._rules:
            return True
        for rule in self._rules:
            if any(fnmatchcase(user, pattern) for pattern in rule.keys):
                return any(fnmatchcase(name, pattern) for pattern in getattr(rule, action))
        return False
