"""The limits of pipelines: in the configuration, and on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from zambezi.cli.errors import OptionsError
from zambezi.cli.limits import add_limit_options, limits_of
from zambezi.server.config import Config, parse
from zambezi.server.errors import ConfigError
from zambezi.spark.limits import Limits


def given(name: str, *arguments: str) -> Limits:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    add_limit_options(parser)
    return limits_of(parser.parse_args([name, *arguments]))


def test_limits_are_tables_of_the_configuration() -> None:
    limits = parse('[pipelines.traffic]\nrecent = "15m"\nmissing = 3\n').pipelines
    assert (limits.traffic.recent, limits.traffic.missing) == (900.0, 3)
    assert limits.fleet_audit == Config().pipelines.fleet_audit
    with pytest.raises(ConfigError, match=r"z.toml:2: pipelines.traffic.mising is not a known key; did you mean miss"):
        parse("[pipelines.traffic]\nmising = 3\n", "z.toml")
    with pytest.raises(ConfigError, match=r"missing must be 0 to \d+, not -1"):
        parse("[pipelines.traffic]\nmissing = -1\n")


def test_the_command_line_goes_before_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "zambezi.toml"
    path.write_text('[pipelines.traffic]\nrecent = "15m"\nmissing = 3\n')
    limits = given("traffic", "--config", str(path), "--limit", "missing=4")
    assert (limits.traffic.recent, limits.traffic.missing) == (900.0, 4)
    assert given("network-health", "--limit", "recent=2h").network_health.recent == 7200.0
    assert given("restore", "--config", str(path)).traffic.missing == 3


def test_mistakes_on_the_command_line_are_named() -> None:
    with pytest.raises(OptionsError, match="--limit recent=soon: 'soon' is not a time such as 90s"):
        given("traffic", "--limit", "recent=soon")
    with pytest.raises(OptionsError, match="--limit a=1: a is not a known key; the known keys are recent"):
        given("traffic", "--limit", "a=1")
    with pytest.raises(OptionsError, match="--limit recent: write NAME=VALUE"):
        given("traffic", "--limit", "recent")
    with pytest.raises(OptionsError, match="restore has no limits"):
        given("restore", "--limit", "recent=1h")
