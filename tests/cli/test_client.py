"""zambezi.cli.client: the options of every command that connects to a broker."""

from __future__ import annotations

import argparse

import pytest

from zambezi.cli.client import ENDPOINT, add_client_options, endpoint_of


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ENDPOINT),
        (["--endpoint", "tcp://a:1"], "tcp://a:1"),
        (["--endpoint", "tcp://a:1", "--endpoint", "tcp://b:1"], "tcp://a:1,tcp://b:1"),
        (["--endpoint", ENDPOINT, "--endpoint", "tcp://b:1"], f"{ENDPOINT},tcp://b:1"),
    ],
)
def test_the_endpoint_can_be_given_several_times(given: list[str], wanted: str) -> None:
    parser = argparse.ArgumentParser()
    add_client_options(parser)
    assert endpoint_of(parser.parse_args(given)) == wanted
