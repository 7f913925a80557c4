"""The configuration: every mistake is reported, with its line and what to write instead.

It also covers `consistency`: the mistakes of settings that contradict each other. `quantity` has doctests.
"""

import dataclasses
from pathlib import Path

import pytest

from zambezi.server.config import Config, JournalConfig, MirrorConfig, Rule, StoreConfig, parse, place, read, show
from zambezi.server.errors import ConfigError


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "z.toml")
    return caught.value.mistakes


def test_an_empty_file_gives_the_defaults() -> None:
    assert parse("") == Config()


def test_a_printed_configuration_reads_back_the_same() -> None:
    config = dataclasses.replace(
        Config(),
        zeps=dataclasses.replace(
            Config().zeps,
            streams={"prices": JournalConfig(sync="always", keep=3600.0), "a stream": JournalConfig()},
            mirrors=[MirrorConfig(source="tcp://berlin:5671", stream="readings", since="latest", begin_again=True)],
        ),
        rules=[Rule(keys=["sensor-*"], publish=["telemetry"]), Rule()],
    )
    assert parse(show(config)) == config
    assert parse(show(Config())) == Config()


def test_every_key_has_a_comment() -> None:
    for line in show(Config()).splitlines():
        assert not line or line.startswith("[") or "  # " in line


def test_sizes_and_times_can_have_units() -> None:
    journal = parse('[zeps.journal]\nkeep = "7d"\nkeep_bytes = "10G"\nsegment = 1048576').zeps.journal
    assert journal == JournalConfig(keep=604800.0, keep_bytes=10 << 30, segment=1 << 20)


def test_the_options_of_a_store_are_texts() -> None:
    text = '[zeps.store]\nurl = "s3://b/p"\ncommit = "10ms"\n[zeps.store.options]\nendpoint = "http://h:1"\n'
    store = parse(text).zeps.store
    assert store == StoreConfig(url="s3://b/p", commit=0.01, options={"endpoint": "http://h:1"})
    assert parse(show(parse(text))).zeps.store == store


MIRROR = '[[zeps.mirrors]]\nsource = "tcp://a:1"\nstream = "s"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[zeps]\nendpiont = "x"', "z.toml:2: zeps.endpiont is not a known key; did you mean endpoint?"),
        ("\n[bogus]\na = 1", "z.toml:2: bogus is not a known key; the known keys are server, zeps, "),
        ("[zeps]\n# why\nenabled = 3", "z.toml:3: enabled must be true or false, not 3"),
        ("[console]\nport = true", "z.toml:2: port must be a number, not true"),
        ("[console]\nport = 70000", "z.toml:2: port must be 0 to 65535, not 70000"),
        ("[zeps]\nendpoint = 5671", 'z.toml:2: endpoint must be a text in quotes, as in endpoint = "..."'),
        ('[zeps]\nbehind = "x"', 'z.toml:2: behind must be one of "invalid", "oldest", not "x"'),
        ('[zeps.streams.prices]\nkeep = "soon"', "z.toml:2: 'soon' is not a time such as 90s"),
        ("[zeps.journal]\nkeep_bytes = true", 'z.toml:2: keep_bytes must be a size such as "10G" or 4096'),
        ("[zeps.journal]\nkeep = -1", 'z.toml:2: keep must be a time such as "7d" or 90 (seconds), not -1'),
        ("zeps = 1", "z.toml:1: zeps must be a table: write [zeps] and its keys below it"),
        ("rules = 1", "z.toml:1: write one [[rules]] table for each entry"),
        ("zeps.streams = 1", "z.toml:1: write one [zeps.streams.NAME] table for each entry"),
        ('[[rules]]\nkeys = "ann"', 'z.toml:2: write a list of texts, as in keys = ["one", "two"]'),
        ("[zeps", "z.toml:1: Expected ']' at the end of a table declaration; end the header of the table with ]"),
        ('[console]\nhost = "0.0.0.0"', "z.toml:2: a console that other machines can reach needs a token"),
        ('[zeps.streams.p]\nmulticast = "udp://10.0.0.1:5"', "z.toml:2: udp://10.0.0.1:5 is not a multicast group"),
        ('[zeps.journal]\nmulticast = "udp://239.77.1.1:5680"', "z.toml:2: a multicast group belongs to one stream"),
        ('[zeps.streams."$x"]\nkeep = "1d"', "z.toml:1: the name of a stream must not be empty or begin with $"),
        ("[zeps]\n[zeps]", "z.toml:2: Cannot declare ('zeps',) twice; a table has one header"),
        ("[zeps]\ncreate = true\ncreate = false", "z.toml:3: Cannot overwrite a value; the key is set twice"),
        ("[zeps]\ncreate = yes", 'z.toml:2: Invalid value; a value is a number, true, false, a "text" in'),
        ('[zre]\nname = "x', 'z.toml:2: Unterminated string; end the text with "'),
        ("x = " + "[" * 100_000, "z.toml: tables and lists are nested too deep"),
        ('[zeps]\nendpoint = "5671"', "z.toml:2: '5671' is no endpoint: write tcp://HOST:PORT"),
        ('[mcollective]\nendpoint = "tcp://127.0.0.1:70000"', "z.toml:2: 'tcp://127.0.0.1:70000': a port is 1 to"),
        ('[mcollective]\nendpoint = "tcp://127.0.0.1:5671"', "z.toml:2: [zeps] already uses tcp://127.0.0.1:5671; "),
        ('[zre]\n\nseeds = [\n  "x"\n]', "z.toml:3: 'x' is no endpoint"),
        ('[zre]\ngossip_connect = ["x"]', "z.toml:2: 'x' is no endpoint"),
        (
            '[zre]\ngossip_connect = ["tcp://10.0.0.7:1|x"]',
            "z.toml:2: tcp://10.0.0.7:1|x has a key, and this node has none",
        ),
        (
            '[zre]\nnode_key = "k"\nallowed = "any"\nseeds = ["tcp://10.0.0.7:1"]',
            "z.toml:4: tcp://10.0.0.7:1 has no public key of 40 characters",
        ),
        ('[zre]\ngossip_bind = "tcp://10.0.0.7"', "z.toml:2: 'tcp://10.0.0.7' has no port"),
        (
            '[zre]\nkey = "a"\nnode_key = "b"\nallowed = "any"',
            "z.toml:3: a node has the key of its mesh or a key of its",
        ),
        ('[zre]\nnode_key = "k"', 'z.toml:2: set allowed = "DIRECTORY"'),
        ('[zre]\nallowed = "any"', "z.toml:2: this is for a node with a key of its own"),
        ("[zre]\nbeacon_port = 70000", "z.toml:2: beacon_port must be 1 to 65535, not 70000"),
        ("[zeps]\nmax_streams = 0", "z.toml:2: max_streams must be 1 to 10000000, not 0"),
        ('[zeps.journal]\nsync = "store"', 'z.toml:2: sync = "store" needs an object store: set url in [zeps.store]'),
        ('[zeps.streams.s]\nsync = "store"', 'z.toml:2: sync = "store" needs an object store'),
        ('[zeps.store]\nurl = "ftp://x/y"', "z.toml:2: url must be a directory, or begin with s3://"),
        ('[zeps.store]\nendpoint = "berlin:5671"', "z.toml:2: 'berlin:5671' is no endpoint"),
        ("[zeps.store.options]\nretries = 3", "z.toml:1: write a table of texts"),
        ("[zeps.journal]\nsegment = 1", 'z.toml:2: segment must be "64K" to "1024T", not 1'),
        ("[server]\nmax_unfinished = 1048576", "z.toml:2: one message can be larger than all unfinished messages"),
        ("[zeps.journal]\nkeep_bytes = inf", 'z.toml:2: keep_bytes must be a size such as "10G" or 4096, not Inf'),
        ("[zeps.journal]\nkeep = 1e308", 'z.toml:2: keep must be 1 to "36600d", not 1e+308'),
        ('[server]\ndata = " "', "z.toml:2: name a directory"),
        ('[server]\ndata = "a\\u0000"', "z.toml:2: a path cannot contain a zero byte"),
        ('[log]\nstream = "$log"', "z.toml:2: the name of a stream must not be empty or begin with $"),
        (f"[zeps.streams]\n{'x' * 256} = {{}}", "z.toml:2: the name of a stream has at most 255 bytes"),
        ("[zeps]\nenabled = false", "z.toml:2: [log] needs a stream, and [zeps] is off"),
        ('[console]\nhost = "::"', "z.toml:2: a console that other machines can reach needs a token"),
        ('[console]\nhost = "0.0.0.0"\ntoken = " "', "z.toml:3: a token has printable characters and no spaces"),
        ('[console]\ntoken = "t"', "z.toml:2: this token can be guessed: use 16 random characters or more"),
        ('[console]\ntoken = "0c1f6f0e9a7b43d"', "z.toml:2: this token can be guessed"),
        ('[console]\ntoken = "abababababababababab"', "z.toml:2: this token can be guessed"),
        ('[console]\ntoken = "Zambezi-Console-2026"', "z.toml:2: this token can be guessed"),
        ('[log]\nstream = "mcollective"', "z.toml:2: the middleware keeps its topics in mcollective"),
        (
            '[zeps.streams.zrelog]\nmulticast = "udp://239.77.1.1:5680"\n[[rules]]',
            "z.toml:2: every reader of the group could read zrelog, and rules do not apply to groups",
        ),
        ('[[zeps.mirrors]]\nsource = "tcp://a:1"', "z.toml:1: the name of a stream must not be empty"),
        ('[[zeps.mirrors]]\nsource = "a"\nstream = "s"', "z.toml:2: 'a' is no endpoint"),
        (f'{MIRROR}target = "$t"', "z.toml:4: the name of a stream must not be empty or begin with $"),
        (f'{MIRROR}target = "zrelog"', "z.toml:4: only the server itself writes zrelog"),
        (f'{MIRROR}key = "k"', "z.toml:4: key works only with server_key"),
        (f'{MIRROR}{MIRROR}name = "s"', "z.toml:7: another mirror with this name fills s"),
        (f'{MIRROR}since = "now"', 'z.toml:4: since must be one of "", "earliest", "latest"'),
        ('[[rules]]\nkeys = ["a"]\n[[rules]]\nkeys = "b"', "z.toml:4: write a list of texts"),
        ('[zeps.streams."a.b"]\n\nkeep = true', 'z.toml:3: keep must be a time such as "7d" or 90 (seconds), not tr'),
        ('[zre]\nname = "#"\r\nnaem = 1\r\n', "z.toml:3: zre.naem is not a known key; did you mean name?"),
    ],
)
def test_a_mistake_has_its_line_and_says_what_to_write(text: str, told: str) -> None:
    (only,) = mistakes(text)
    assert only.startswith(told)


def test_all_mistakes_are_reported() -> None:
    assert len(mistakes('[zeps]\nenabled = 1\ncreate = "no"\n[zre]\nname = 7\nnaem = "x"')) == 4


def test_a_console_with_a_token_may_listen_on_every_address() -> None:
    assert parse('[console]\nhost = "0.0.0.0"\ntoken = "0c1f6f0e9a7b43d2"').console.host == "0.0.0.0"


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match=r"zambezi.toml:1: byte 5 is not UTF-8"):
        read(path)


def test_a_console_on_any_loopback_address_needs_no_token() -> None:
    assert parse('[console]\nhost = "127.0.0.2"').console.host == "127.0.0.2"


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_bytes(b"\xef\xbb\xbf[zeps]\ncreate = false\n")
    assert not read(path).zeps.create


def test_a_missing_key_has_the_line_of_its_table(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text("[zeps]\ncreate = false\n")
    assert place(path, ("zeps", "create")) == f"{path}:2"
    assert place(path, ("zeps", "endpoint")) == f"{path}:1"
    assert place(path, ("zre", "key")) == str(path)
    assert place(tmp_path / "none", ("zre", "key")) == str(tmp_path / "none")


def test_a_console_that_answers_only_health_checks_can_be_reached(tmp_path: Path) -> None:
    file = tmp_path / "z.toml"
    file.write_text('[server]\nkeys = "keys"\n[console]\nhost = "0.0.0.0"\n')
    assert read(file).console.host == "0.0.0.0"
