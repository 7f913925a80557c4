"""Compacted streams in Spark's readers, from files and from a broker: the rows of the messages that are left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.journal import BEGINNING, write
from tests.spark.schemas import COLUMNS, schema_of
from tests.zeps.journal.test_compaction import compact
from tests.zeps.serving import serving
from zambezi.spark.batch_reader import BatchReader
from zambezi.spark.options import BATCH, Options
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.extract import messages

POLICY = Policy(segment=400, compact=True)
BARE = schema_of("sequence long not null, timestamp timestamp not null")


@pytest.fixture(params=["path", "endpoint"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    published = [(f"k{number % 5 if number < 60 else number % 2}", b"%d" % (number + 1)) for number in range(95)]
    write(tmp_path, "s", published, batch=4, policy=POLICY)
    with Store(tmp_path, policy=POLICY) as store:
        compact(store.open("s"), BEGINNING + 100)
    if request.param == "path":
        yield {"path": str(tmp_path)}
    else:
        with serving(tmp_path) as (_, bound):
            yield {"endpoint": bound}


@pytest.fixture
def kept(where: dict[str, str], tmp_path: Path) -> dict[int, int]:
    """The sequences that are left, and their times in seconds."""
    with Store(tmp_path, write=False) as store:
        journal = store.open("s")
        assert 0 < journal.messages < journal.last == 95
        return {one.sequence: one.time // 1_000_000 for one in messages(journal, 0, journal.last)}


@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("more", [{}, {"minPartitions": "5"}])
def test_the_rows_are_those_of_the_messages_that_are_left(
    is_bare: bool, more: dict[str, str], where: dict[str, str], kept: dict[int, int]
) -> None:
    reader = BatchReader(BARE if is_bare else COLUMNS, Options({**where, **more, "stream": "s"}, BATCH))
    rows = [row for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()]
    assert {row["sequence"]: row["timestamp"].timestamp() for row in rows} == kept
    assert len(rows) == len(kept)
    if not is_bare:
        assert [int(row["body"]) for row in rows] == [row["sequence"] for row in rows]
    reader.close()


def test_a_range_can_begin_and_end_in_a_gap(where: dict[str, str], kept: dict[int, int]) -> None:
    removed = [at for at in range(1, 96) if at not in kept]
    bounds = {"startingSequence": str(removed[2]), "endingSequence": str(removed[-1])}
    reader = BatchReader(COLUMNS, Options({**where, **bounds, "stream": "s"}, BATCH))
    found = [row["sequence"] for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()]
    assert found == [at for at in kept if removed[2] <= at <= removed[-1]]
    reader.close()
