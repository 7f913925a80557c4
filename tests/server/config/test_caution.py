"""Settings that work but are not safe."""

import pytest

from zambezi.server import Config
from zambezi.server.config import parse
from zambezi.server.config.caution import cautions

TOKEN = 'token = "0c1f6f0e9a7b43d2"'


def test_the_defaults_are_safe() -> None:
    assert list(cautions(Config())) == []


@pytest.mark.parametrize("service", ["zeps", "mcollective"])
@pytest.mark.parametrize("host", ["0.0.0.0", "*", "[::]", "10.0.0.7", "broker.example.org"])
def test_listening_for_other_machines_without_keys(service: str, host: str) -> None:
    text = f'[{service}]\nendpoint = "tcp://{host}:7000"'
    ((path, problem),) = cautions(parse(text))
    assert path == (service, "endpoint")
    assert "has full access, and nothing is encrypted" in problem
    assert not list(cautions(parse(f'[server]\nkeys = "keys"\n[console]\n{TOKEN}\n{text}')))
    assert not list(cautions(parse(f"{text}\nenabled = false\n[log]\nenabled = false")))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:7000", "tcp://[::1]:*", "tcp://localhost:7000", "ipc:///x"])
def test_listening_for_programs_of_this_machine_needs_no_keys(address: str) -> None:
    assert not list(cautions(parse(f'[zeps]\nendpoint = "{address}"')))


def test_a_console_without_a_token_is_off_if_the_server_has_keys() -> None:
    ((path, problem),) = cautions(parse('[server]\nkeys = "keys"'))
    assert path == ("console", "token")
    assert "the console is off except for /healthz and /readyz" in problem
    assert not list(cautions(parse('[server]\nkeys = "keys"\n[console]\nenabled = false')))


def test_a_token_is_sent_in_clear() -> None:
    ((path, _),) = cautions(parse(f'[console]\nhost = "0.0.0.0"\n{TOKEN}'))
    assert path == ("console", "host")


def test_a_rule_cannot_let_a_client_write_the_servers_own_streams() -> None:
    ((path, problem),) = cautions(parse('[log]\nstream = "logs"\n[[rules]]\n[[rules]]\npublish = ["*", "logs"]'))
    assert path == ("rules", 1, "publish")
    assert problem == "no rule lets a client publish logs: only the server writes its own streams"


def test_a_rule_about_a_stream_that_nobody_may_create() -> None:
    rule = '[[rules]]\npublish = ["orders", "of-{user}", "a*"]\n'
    ((path, problem),) = cautions(parse(rule))
    assert path == ("rules", 0, "publish")
    assert problem == (
        "no client may create orders, so nobody can publish to it unless it exists already: add "
        '[zeps.streams.orders], or create = ["orders"] to a rule'
    )
    assert not list(cautions(parse(f'{rule}[[rules]]\ncreate = ["ord*"]')))
    assert list(cautions(parse(f'[zeps]\ncreate = false\n{rule}[[rules]]\ncreate = ["ord*"]')))
    assert not list(cautions(parse(f"[zeps.streams.orders]\n{rule}")))
