# %% [markdown]
# # The rates of streams
#
# A broker takes readings from rooms and a few alarms. `traffic` counts them by window, and draws some seconds of them.
# Run it as a program (`python examples/rates.py`), or cell by cell in an editor that knows `# %%`.

# %%
import asyncio
import math
from pathlib import Path
from tempfile import TemporaryDirectory

from zambezi.spark import session
from zambezi.spark.pipelines import PIPELINES, Run, Settings
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker import Broker

place = TemporaryDirectory()
data, out = f"{place.name}/data", f"{place.name}/out"


# %% [markdown]
# Some seconds of messages, more and less of them, as a day has it.
# %%
async def publish() -> None:
    async with Broker(data) as broker, Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
        readings, alarms = client.stream("readings"), client.stream("alarms")
        for step in range(40):
            count = round(300 + 250 * math.sin(step / 6))
            await readings.publish_many([(f"room{number % 4}.temperature", b"21.5") for number in range(count)])
            if step % 9 > 5:
                await alarms.publish_many([("room1.smoke", b"!")] * (step * 2))
            await asyncio.sleep(0.1)
        await readings.flush()
        await alarms.flush()


asyncio.run(publish())

# %% [markdown]
# The journals as a table, reduced to windows of 200 ms.
# %%
settings = Settings(window=0.2)
spark = session()
run = Run(spark, PIPELINES["traffic"], out, {"path": data}, settings)
print(run.once())
for report in run.reports():
    print(report.title)
    report.frame.show(5, truncate=False)

# %% [markdown]
# And as pictures. A notebook shows a chart that is the last value of a cell.
# %%
for number, figure in enumerate(run.figures(), 1):
    picture = Path(f"rates-{number}.svg")
    picture.write_text(figure.chart.file())
    print(f"see {picture}: {figure.title}")

# %%
run.release()
place.cleanup()
