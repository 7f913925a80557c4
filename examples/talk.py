# %% [markdown]
# # Who talks to whom
#
# Nodes of a mesh report what they do; a server keeps it in the stream `zrelog`. Here a small mesh that somebody
# recorded: eight nodes that chat, one that comes and goes, and a line between two that loses messages.

# %%
import asyncio
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from zambezi.spark import session
from zambezi.spark.pipelines import PIPELINES, Run
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker import Broker
from zambezi.zre.log import Level, Log, What

NAMES = ["ann", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"]
HASHES = {name: 0x1A2B + 0x0F31 * number for number, name in enumerate(NAMES)}
place = TemporaryDirectory()
data, out = f"{place.name}/data", f"{place.name}/out"


# %% [markdown]
# What they report: comings, a conversation in which some talk more than others, and goings.
# %%
def report(what: What, node: str, peer: str | None, text: str) -> tuple[str, bytes]:
    told = HASHES[peer] if peer else 0
    record = Log(Level.INFO, what, HASHES[node], told, time.time_ns() // 1_000_000, text)
    return f"INFO.{what.name}.{HASHES[node]:04x}", record.encode()[0]


def conversation(chance: random.Random) -> list[tuple[str, bytes]]:
    logs = [report(What.ENTER, node, peer, peer) for node in NAMES for peer in NAMES if node != peer]
    for _ in range(4):
        logs += [report(What.EXIT, "ann", "heidi", "expired"), report(What.ENTER, "ann", "heidi", "heidi")]
    for _ in range(3000):
        sender, receiver = chance.choices(NAMES, range(8, 0, -1), k=2)
        if sender == receiver:
            logs.append(report(What.SEND, sender, None, "SHOUT lobby"))
            logs += [report(What.RECV, node, sender, "SHOUT lobby") for node in NAMES[:4] if node != sender]
        else:
            logs.append(report(What.SEND, sender, receiver, "WHISPER"))
            if (sender, receiver) != ("dave", "bob") or chance.random() < 0.7:
                logs.append(report(What.RECV, receiver, sender, "WHISPER"))
    return logs


async def publish() -> None:
    async with Broker(data) as broker, Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
        await client.stream("zrelog").publish_many(conversation(random.Random(7)))
        await client.stream("zrelog").flush()


asyncio.run(publish())

# %% [markdown]
# What the mesh says of itself.
# %%
spark = session()
run = Run(spark, PIPELINES["network-health"], out, {"path": data})
print(run.once())
for found in run.reports():
    print(found.title, *found.notes)
    found.frame.show(5, truncate=False)

# %% [markdown]
# The same as pictures: who talks to whom, and when nodes were there. Hashes are called by the names under which they
# came, as far as these are unambiguous. A notebook shows a chart that is the last value of a cell.
# %%
for number, figure in enumerate(run.figures(), 1):
    picture = Path(f"talk-{number}.svg")
    picture.write_text(figure.chart.file())
    print(f"see {picture}: {figure.title}")

# %%
run.release()
place.cleanup()
