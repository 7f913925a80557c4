"""Pictures, configurations and files on the pages are compared with the real thing."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pages.blocks import ROOT, Block, all_blocks
from tests.test_architecture import LAYERS
from zambezi.mcollective import messages
from zambezi.mcollective.fleet import Reply, Request
from zambezi.server import Config, config, keydir
from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.ahead import AHEAD
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.identity import write_cached
from zambezi.zeps.journal.positions import READER, Position
from zambezi.zeps.messages import (
    ADMIN,
    EXTENSIONS,
    ONCE,
    POSITIONS,
    RANGES,
    REQUESTS,
    SHARED,
    TIMES,
    Publish,
    Zeps,
    extensions_of,
)
from zambezi.zeps.store.names import FORMAT_KEY, StreamPlace, parse_chunk, parse_segment
from zambezi.zmtp import z85
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair, write_pair

Check = Callable[[str, Path], None]


class Texts:
    """The checks of blocks, by the page and the first line of a block."""

    kinds = frozenset({"toml", "json", "text", "dockerfile"})

    def __init__(self) -> None:
        self._checks: dict[tuple[str, str], Check] = {}

    def at(self, page: str, first: str) -> Callable[[Check], Check]:
        def note(check: Check) -> Check:
            self._checks[page, first] = check
            return check

        return note

    def knows(self, block: Block) -> bool:
        return block.kind == "toml" or _place(block) in self._checks

    def check(self, block: Block, place: Path) -> None:
        (check_toml if block.kind == "toml" else self._checks[_place(block)])(block.text, place)

    @property
    def places(self) -> set[tuple[str, str]]:
        return set(self._checks)


def _place(block: Block) -> tuple[str, str]:
    return block.page, block.text.splitlines()[0].split("  ")[0].strip()


TEXTS = Texts()


def check_toml(text: str, place: Path) -> None:
    """Check that the server accepts a configuration."""
    (place / "zambezi.toml").write_text(text)
    config.read(place / "zambezi.toml")


@TEXTS.at("README.md", "devices, services, programs")
def check_picture(text: str, _place: Path) -> None:
    """Check that the names in quotes are names of streams, and of the Spark format."""
    from zambezi.spark.source import ZepsDataSource

    assert set(re.findall(r'stream "(\w+)"', text)) == {Config().log.stream, "mcollective"}
    assert set(re.findall(r'(?:source|sink) "(\w+)"', text)) == {ZepsDataSource.name()}


@TEXTS.at("docs/architecture.md", "cli")
def check_layers(text: str, _place: Path) -> None:
    shown = [set(re.split(r"\s{3,}", line)[:-1]) for line in reversed(text.splitlines())]
    assert shown == LAYERS[1:]  # `errors` is below all of them


@TEXTS.at("docs/journal.md", "data/")
def check_files(text: str, place: Path) -> None:
    """Compare with the files of a stream that has two segments and is open for writing."""
    with Store(place / "data", policy=Policy(segment=1)) as store:
        prices = store.open("prices")
        for number in range(2):
            block = deliver([Publish("gold", b"%d" % number).encode()[0]], first=number + 1)
            prices.append(block, 1.0, [Count(b"miner-----------", 1, number + 1)])
        prices.positions.write([Position(READER, "billing", 1)])
        write_cached(place / "data" / "prices")
        (place / "data" / "prices" / AHEAD).touch()  # a stream gets it after some small syncs
        found = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    shown, directory = [], ""
    for line in text.splitlines()[1:]:
        name = line.split()[0]
        directory = name if name.endswith("/") else directory
        if not name.endswith("/"):
            shown.append(f"data/{directory}{name}")
    assert sorted(shown) == [name.replace("0000000002.", "0000009001.") for name in found]


@TEXTS.at("docs/journal.md", "{")
def check_identity(text: str, place: Path) -> None:
    with Store(place, policy=Policy()) as store:
        store.open("prices")
    real = (place / "prices" / "stream.json").read_text()
    mask = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert re.sub(mask, "UUID", text).strip() == re.sub(mask, "UUID", real).strip()


_TYPES = frozenset({"number-1", "number-2", "number-4", "number-8", "string", "chunk"})


def _rules(text: str) -> dict[str, list[str]]:
    """Return the elements of each rule of a grammar, without comments."""
    lines = [line.partition(";")[0].split() for line in text.splitlines()]
    return {line[0]: line[2:] for line in lines if len(line) > 2 and line[1] == "="}


@TEXTS.at("docs/protocol.md", "ZEPS")
@TEXTS.at("docs/protocol.md", "use-stream")
def check_protocol(text: str, _place: Path) -> None:
    """Check that each command has its number and the fields of its class, with their types."""
    page = "\n".join(block.text for block in all_blocks("text") if block.page == "docs/protocol.md")
    every, shown = _rules(page), _rules(text)
    classes = {kind.__name__.lower(): kind for kind in Zeps.__subclasses__()}
    found = 0
    for name, elements in shown.items():
        if elements[:1] != ["signature"]:
            continue
        kind = classes[name.removesuffix("_command").replace("_", "")]
        assert elements[1] == f"%d{kind._id}"
        types = [element if element in _TYPES else every[element][0] for element in elements[2:]]
        assert types == [step.kind.name for step in kind._steps]
        found += 1
    assert found in (1, 4, 6, 12)


@TEXTS.at("docs/protocol.md", f"{EXTENSIONS}: {ONCE}, {ADMIN}, {TIMES}, {POSITIONS}, {REQUESTS}, {SHARED}, {RANGES}")
def check_extensions(text: str, _place: Path) -> None:
    name, _, listed = text.strip().partition(": ")
    assert extensions_of({name.lower(): listed.encode()}) == [ONCE, ADMIN, TIMES, POSITIONS, REQUESTS, SHARED, RANGES]


@TEXTS.at("docs/security.md", "allowed/")
def check_allowed(text: str, place: Path) -> None:
    shown = dict(re.findall(r'^ +(\S+) .*allowed as "(.+)"$', text, re.MULTILINE))
    for name in shown:
        stem, _, ending = name.rpartition(".")
        pair = KeyPair.generate()
        if ending == "pub":
            write_pair(place / "made", stem, pair)
            (place / "made" / name).rename(place / name)
        else:
            (place / name).write_text(f'curve\n    public-key = "{z85.encode(pair.public)}"\n')
    (place / "made").rename(place.parent / f"{place.name}-made")
    keyring = Keyring(place)
    assert not keyring.problems
    assert {name for names in keyring.keys.values() for name in names} == set(shown.values())


@TEXTS.at("docs/store.md", "PREFIX/")
def check_objects(text: str, _place: Path) -> None:
    names = [line.split()[0].rstrip("/") for line in text.splitlines()]
    place = StreamPlace.of("prices")
    assert names[1] == FORMAT_KEY
    assert "/".join(names[2:6]) == place.identity
    assert [parse_chunk(name) for name in names[7:9]] == [1, 2]
    segment = parse_segment(names[10])
    assert segment is not None
    assert segment.first < segment.last


@TEXTS.at("docs/security.md", "keys/")
def check_key_directory(text: str, _place: Path) -> None:
    shown = {line.split()[0] for line in text.splitlines()[1:]}
    assert shown == {keydir.SECRET, "server.pub", f"{keydir.ALLOWED}/", keydir.MESH, keydir.GROUP}


@TEXTS.at("docs/mcollective.md", '[""] VERB *(KEY VALUE) ["" *positional]')
def check_grammar(_text: str, _place: Path) -> None:
    frames = (b"", b"SUB", b"ID", b"1", b"", b"a topic", b"another")
    command = messages.decode(frames)
    assert command == messages.Command(b"SUB", {b"ID": b"1"}, (b"a topic", b"another"), delimited=True)
    assert command.encode() == frames
    assert messages.decode([b"NOOP"]) == messages.Command(b"NOOP", {}, (), delimited=False)


@TEXTS.at(
    "docs/fleet.md",
    '{"zambezi": 1, "request": "f0a1...", "agent": "disk", "action": "usage", '
    '"arguments": {"path": "/"}, "caller": "laptop"}',
)
def check_request(text: str, _place: Path) -> None:
    request = Request.decode(text.encode())
    assert request is not None
    assert list(json.loads(request.encode()).items()) == list(json.loads(text).items())


@TEXTS.at(
    "docs/fleet.md",
    '{"zambezi": 1, "reply": "f0a1...", "node": "node1", "status": "ok", '
    '"result": {"used": 1}, "error": "", "took": 0.0021}',
)
def check_reply(text: str, _place: Path) -> None:
    reply = Reply.decode(text.encode())
    assert reply is not None
    assert list(json.loads(reply.encode()).items()) == list(json.loads(text).items())


@TEXTS.at("docs/clusters.md", "FROM apache/spark:4.3.0-python3")
def check_image(text: str, _place: Path) -> None:
    """Check that the copied files exist, and that the package supports this version of Spark."""
    spark = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    (version,) = re.findall(r"apache/spark:(\d+)\.(\d+)", text)
    oldest, above = re.findall(r"(\d+)\.(\d+)", spark[0])
    assert tuple(map(int, oldest)) <= tuple(map(int, version)) < tuple(map(int, above))
    for sources in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split())


# Below all checks: the list of blocks is made when this is imported.
@TEXTS.at(
    "docs/pipelines.md",
    "healthy: no, because room.sensor-7 of readings was silent for 4.9 min (14 messages expected)",
)
def check_verdict(text: str, _place: Path) -> None:
    """Compare with the verdict on these rows."""
    from zambezi.spark.pipelines.pipeline import Rows, Settings
    from zambezi.spark.pipelines.traffic import judge

    def rows(**row: object) -> Rows:
        return Rows(list(row), [list(row.values())], False, frozenset())

    time = "2026-11-16 13:42:11"
    found = {
        "traffic-streams": rows(stream="readings", messages=11_326, to=time),
        "traffic-keys": rows(
            stream="readings",
            key="room.sensor-7",
            state="silent",
            silent_s=291.6,
            usual_gap_s=20.9,
            expected=14,
            last=time,
        ),
        "traffic-prefixes": rows(
            **{"stream": "readings", "prefix": "door", "state": "surge", "from": time, "to": time},
            windows=3,
            messages=1827,
            expected=54.0,
            deviations=278.6,
        ),
        "traffic-gaps": Rows(["stream"], [], False, frozenset()),
    }
    assert text.splitlines() == judge(found, Settings()).lines()


@pytest.mark.parametrize("block", [block for block in all_blocks(*TEXTS.kinds) if TEXTS.knows(block)], ids=str)
def test_a_text_agrees_with_the_real_thing(block: Block, tmp_path: Path) -> None:
    TEXTS.check(block, tmp_path)


def test_every_check_has_its_text() -> None:
    assert TEXTS.places == {_place(block) for block in all_blocks(*TEXTS.kinds) if block.kind != "toml"}
