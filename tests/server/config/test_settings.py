"""The configuration: every mistake is told, with its line and what to write instead."""

import dataclasses
from pathlib import Path

import pytest

from zambezi.server.config import Config, JournalConfig, Rule, parse, place, read, show
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
        ("[console]\nport = 70000", "z.toml:2: port is 0 to 65535, not 70000"),
        ("[zeps]\nendpoint = 5671", 'z.toml:2: endpoint is a text in quotes, as in endpoint = "..."'),
        ('[zeps]\nbehind = "x"', 'z.toml:2: behind is one of "invalid", "oldest", not "x"'),
        ('[zeps.streams.prices]\nkeep = "soon"', "z.toml:2: 'soon' is not a time such as 90s"),
        ("[zeps.journal]\nkeep_octets = true", 'z.toml:2: keep_octets is "10G" or a number of octets'),
        ("[zeps.journal]\nkeep = -1", 'z.toml:2: keep is "7d" or a number of seconds, not -1'),
        ("zeps = 1", "z.toml:1: zeps is a table: write [zeps] and its keys below"),
        ("rules = 1", "z.toml:1: write [[rules]] for each of them"),
        ("zeps.streams = 1", "z.toml:1: write [zeps.streams.NAME] for each of them"),
        ('[[rules]]\nkeys = "ann"', 'z.toml:2: write a list of texts, as in keys = ["one", "two"]'),
        ("[zeps", "z.toml:1: Expected ']' at the end of a table declaration; the header of a table is closed by ]"),
        ('[console]\nhost = "0.0.0.0"', "z.toml:2: a console that others can reach needs a token"),
        ('[zeps.streams.p]\nmulticast = "udp://10.0.0.1:5"', "z.toml:2: udp://10.0.0.1:5 is not a multicast group"),
        ('[zeps.journal]\nmulticast = "udp://239.77.1.1:5680"', "z.toml:2: a group is for one stream"),
        ('[zeps.streams."$x"]\nkeep = "1d"', "z.toml:1: a stream has a name, which does not begin with $"),
        ("[zeps]\n[zeps]", "z.toml:2: Cannot declare ('zeps',) twice; a table has one header"),
        ("[zeps]\ncreate = true\ncreate = false", "z.toml:3: Cannot overwrite a value; it stands there already"),
        ("[zeps]\ncreate = yes", "z.toml:2: Invalid value; a value is a number, true, false, a text in"),
        ('[zre]\nname = "x', 'z.toml:2: Unterminated string; close the text by "'),
        ("x = " + "[" * 100_000, "z.toml: tables and lists stand in each other too deep"),
        ('[zeps]\nendpoint = "5671"', "z.toml:2: '5671' is no endpoint: write tcp://HOST:PORT"),
        ('[mcollective]\nendpoint = "tcp://127.0.0.1:70000"', "z.toml:2: 'tcp://127.0.0.1:70000': a port is 1 to"),
        ('[mcollective]\nendpoint = "tcp://127.0.0.1:5671"', "z.toml:2: zeps is served at tcp://127.0.0.1:5671 alr"),
        ('[zre]\n\nseeds = [\n  "x"\n]', "z.toml:3: 'x' is no endpoint"),
        ("[zre]\nbeacon_port = 70000", "z.toml:2: beacon_port is 1 to 65535, not 70000"),
        ("[zeps]\nmax_streams = 0", "z.toml:2: max_streams is 1 to 10000000, not 0"),
        ("[zeps.journal]\nsegment = 1", 'z.toml:2: segment is "64K" to "1024T", not 1'),
        ("[zeps.journal]\nkeep_octets = inf", 'z.toml:2: keep_octets is "10G" or a number of octets, not Infinity'),
        ("[zeps.journal]\nkeep = 1e308", 'z.toml:2: keep is 1 to "36600d", not 1e+308'),
        ('[server]\ndata = " "', "z.toml:2: name a directory"),
        ('[server]\ndata = "a\\u0000"', "z.toml:2: a path has no zero octet"),
        ('[log]\nstream = "$log"', "z.toml:2: a stream has a name, which does not begin with $"),
        (f"[zeps.streams]\n{'x' * 256} = {{}}", "z.toml:2: the name of a stream has at most 255 octets"),
        ("[zeps]\nenabled = false", "z.toml:2: logs are journalled to a stream, and [zeps] is off"),
        ('[console]\nhost = "::"', "z.toml:2: a console that others can reach needs a token"),
        ('[console]\nhost = "0.0.0.0"\ntoken = " "', "z.toml:3: a token has printable characters and no blanks"),
        ('[[rules]]\nkeys = ["a"]\n[[rules]]\nkeys = "b"', "z.toml:4: write a list of texts"),
        ('[zeps.streams."a.b"]\n\nkeep = true', 'z.toml:3: keep is "7d" or a number of seconds, not true'),
        ('[zre]\nname = "#"\r\nnaem = 1\r\n', "z.toml:3: there is no zre.naem; did you mean name?"),
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
    with pytest.raises(ConfigError, match=r"zambezi.toml:1: octet 5 is not UTF-8"):
        read(path)


def test_a_console_on_any_address_of_this_machine_needs_no_token() -> None:
    assert parse('[console]\nhost = "127.0.0.2"').console.host == "127.0.0.2"


def test_a_mark_of_the_byte_order_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_bytes(b"\xef\xbb\xbf[zeps]\ncreate = false\n")
    assert not read(path).zeps.create


def test_a_place_is_told_also_for_what_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text("[zeps]\ncreate = false\n")
    assert place(path, ("zeps", "create")) == f"{path}:2"
    assert place(path, ("zeps", "endpoint")) == f"{path}:1"
    assert place(path, ("zre", "key")) == str(path)
    assert place(tmp_path / "none", ("zre", "key")) == str(tmp_path / "none")
