"""zambezi.zmtp.options: the defaults of a socket, and the values that are refused."""

import inspect

import pytest

from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Limits
from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.face import SocketArguments
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.security import Null


def test_the_defaults() -> None:
    options = Options()
    assert (options.identity, options.on_full) == (b"", "block")
    assert options.send_bound == options.receive_bound == Bound(10_000, 16 * 1024 * 1024)
    assert (options.security, options.authenticator, options.heartbeat) == (Null(), None, None)
    assert (options.limits, options.backoff) == (Limits(), Backoff())


def test_the_options_are_the_keyword_arguments_of_the_sockets() -> None:
    assert set(inspect.signature(Options).parameters) == set(SocketArguments.__annotations__)


@pytest.mark.parametrize(("messages", "octets"), [(0, 1), (1, 0), (-1, 5)])
def test_a_bound_has_room_for_a_message(messages: int, octets: int) -> None:
    with pytest.raises(ZmtpError, match="at least one message of one byte"):
        Bound(messages, octets)
    assert Bound(1, 1).messages == 1


@pytest.mark.parametrize("identity", [b"\0x", b"x" * 256])
def test_an_identity_is_short_and_does_not_look_like_one_that_a_router_assigns(identity: bytes) -> None:
    with pytest.raises(ZmtpError, match="an identity has at most 255 bytes"):
        Options(identity=identity)
    assert Options(identity=b"x" * 255).identity == b"x" * 255


def test_a_policy_is_one_of_three() -> None:
    for policy in ("block", "error", "drop"):
        assert Options(on_full=policy).on_full == policy
    with pytest.raises(ZmtpError, match="on_full must be 'block', 'error' or 'drop', not 'explode'"):
        Options(on_full="explode")  # type: ignore[arg-type]
