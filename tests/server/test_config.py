"""The configuration: every mistake is told, with its line and what to write instead."""

import dataclasses
from pathlib import Path

import pytest

from zambezi.server.config import Config, JournalConfig, Rule, parse, read, show
from zambezi.server.errors import ConfigError


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "z.toml")
    return caught.value.mistakes


def test_an_empty_file_is_the_defaults() -> None:
    assert parse("") == Config()


def test_what_is_shown_is_read_back() -> None:
    config = dataclasses.replace(
        Config(),
        zeps=dataclasses.replace(
            Config().zeps,
            streams={"prices": JournalConfig(sync="always", keep=3600.0), "a stream": JournalConfig()},
        ),
        rules=[Rule(keys=["sensor-*"], publish=["telemetry"]), Rule()],
    )
    assert parse(show(config)) == config
    assert parse(show(Config())) == Config()


def test_every_key_says_what_it_is_for() -> None:
    for line in show(Config()).splitlines():
        assert not line or line.startswith("[") or "  # " in line


def test_amounts_are_written_as_people_do() -> None:
    journal = parse('[zeps.journal]\nkeep = "7d"\nkeep_octets = "10G"\nsegment = 1048576').zeps.journal
    assert journal == JournalConfig(keep=604800.0, keep_octets=10 << 30, segment=1 << 20)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[zeps]\nendpiont = "x"', "z.toml:2: there is no zeps.endpiont; did you mean endpoint?"),
        ("\n[bogus]\na = 1", "z.toml:2: there is no bogus; there are: server, zeps, "),
        ("[zeps]\n# why\nenabled = 3", "z.toml:3: enabled is true or false, not 3"),
        ("[console]\nport = true", "z.toml:2: port is a number, not true"),
        ("[console]\nport = 70000", "z.toml:2: a port is 0 to 65535"),
        ("[zeps]\nendpoint = 5671", 'z.toml:2: endpoint is a text in quotes, as in endpoint = "..."'),
        ('[zeps]\nbehind = "x"', 'z.toml:2: behind is one of "invalid", "oldest", not "x"'),
        ('[zeps.streams.prices]\nkeep = "soon"', "z.toml:2: 'soon' is not a time such as 90s"),
        ("[zeps.journal]\nkeep_octets = true", 'z.toml:2: keep_octets is "10G" or a number of octets'),
        ("[zeps.journal]\nkeep = -1", 'z.toml:2: keep is "7d" or a number of seconds, not -1'),
        ("zeps = 1", "z.toml:1: zeps is a table: write [zeps] and its keys below"),
        ("rules = 1", "z.toml:1: write [[rules]] for each of them"),
        ("zeps.streams = 1", "z.toml:1: write [zeps.streams.NAME] for each of them"),
        ('[[rules]]\nkeys = "ann"', 'z.toml:2: write a list of texts, as in keys = ["one", "two"]'),
        ("[zeps", "z.toml: "),
        ('[console]\nhost = "0.0.0.0"', "z.toml:2: a console that others can reach needs a token"),
        ('[zeps.streams.p]\nmulticast = "udp://10.0.0.1:5"', "z.toml:2: udp://10.0.0.1:5 is no multicast group"),
        ('[zeps.journal]\nmulticast = "udp://239.77.1.1:5680"', "z.toml:2: a group is for one stream"),
        ('[zeps.streams."$x"]\nkeep = "1d"', "z.toml:1: a stream has a name, which does not begin with $"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_to_write(text: str, told: str) -> None:
    (only,) = mistakes(text)
    assert only.startswith(told)


def test_all_mistakes_are_told() -> None:
    assert len(mistakes('[zeps]\nenabled = 1\ncreate = "no"\n[zre]\nname = 7\nnaem = "x"')) == 4


def test_a_console_with_a_token_may_be_reached_by_others() -> None:
    assert parse('[console]\nhost = "0.0.0.0"\ntoken = "t"').console.host == "0.0.0.0"


def test_a_file_that_is_no_utf8_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match="octet 5 is not UTF-8"):
        read(path)
