"""The limits of pipelines on the command line: `--config FILE` and `--limit NAME=VALUE`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.cli.errors import OptionsError
from zambezi.cli.spark import pair
from zambezi.server import config
from zambezi.server.errors import ConfigError
from zambezi.spark.limits import Limits

if TYPE_CHECKING:
    import argparse


def add_limit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for limits."""
    options = parser.add_argument_group("limits of what is healthy")
    options.add_argument(
        "--config", metavar="FILE", type=Path, help="a configuration (zambezi.toml) with tables [pipelines.NAME]"
    )
    options.add_argument(
        "--limit",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a limit of this pipeline, such as recent=15m; before those of --config (can be repeated)",
    )


def limits_of(arguments: argparse.Namespace) -> Limits:
    """Return the limits that the configuration and the command line give."""
    limits = config.read(arguments.config).pipelines if arguments.config is not None else Limits()
    table = arguments.name.replace("-", "_")
    if not hasattr(limits, table):
        if arguments.limit:
            raise OptionsError(f"{arguments.name} has no limits: leave out --limit")
        return limits
    own = getattr(limits, table)
    for one in arguments.limit:
        name, text = pair("--limit", one)
        try:
            value = config.value(type(own), name, text, f"--limit {one}")
        except ConfigError as error:
            raise OptionsError("; ".join(error.mistakes)) from error
        own = dataclasses.replace(own, **{name: value})
    return dataclasses.replace(limits, **{table: own})
