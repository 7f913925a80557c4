"""Three machines of a fleet."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

from zambezi.mcollective.agents import action, agent
from zambezi.mcollective.asyncio import Connector
from zambezi.mcollective.host import AgentHost


@agent("machine")
class Machine:
    """An agent that describes its machine."""

    @action
    def uptime(self) -> dict[str, int]:
        """Return the time since the machine started."""
        return {"seconds": int(time.monotonic())}


async def three_machines(stack: AsyncExitStack, endpoint: str) -> None:
    """Run three nodes with the agent, until the stack is closed."""
    for name in ("web1", "web2", "db1"):
        await stack.enter_async_context(AgentHost(Connector(endpoint), [Machine()], node=name))
