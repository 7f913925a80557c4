"""The arguments of `zambezi pipeline run`: what they mean, and mistakes that can be found before Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zambezi.cli.errors import OptionsError
from zambezi.cli.notices import warn
from zambezi.cli.pipeline_settings import settings_of
from zambezi.cli.spark import check_source, check_times, given, more_options, source_place, store_options

if TYPE_CHECKING:
    import argparse

    from zambezi.spark.lake.place import Place

RESTORE: Final = "restore"
JOIN: Final = "join"
ARCHIVE: Final = "archive"  # always incremental
_REACH: Final = ("endpoint", "serverKey", "secretKey", "timeout")  # the options that say how to reach a broker


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise an error for options that are missing, or that do not work together."""
    is_restore = arguments.name == RESTORE
    if is_restore:
        wanted = {"--archive": arguments.archive, "--endpoint": arguments.endpoint}
        refused = {
            "--path": arguments.path,
            "--out": arguments.out,
            "--follow": arguments.follow,
            "--incremental": arguments.incremental,
            "--pattern": arguments.pattern,
            "--publish": arguments.publish,
            "--publish-reports": arguments.publish_reports,
            "--json": arguments.json,
            "--csv": arguments.csv,
            "--report": arguments.report,
            "--plots": arguments.plots,
            "--window": arguments.window,
            "--delay": arguments.delay,
        }
    else:
        wanted = {"--out": arguments.out}
        refused = {"--archive": arguments.archive, "--into": arguments.into, "--append": arguments.append}
        if arguments.endpoint and arguments.path:
            raise OptionsError("--endpoint and --path contradict each other: give only one of them")
        if not arguments.endpoint and not arguments.path:
            raise OptionsError(
                "give the source of the streams: --endpoint of a broker, $ZAMBEZI_ENDPOINT or a context; or --path"
            )
    for option, value in wanted.items():
        if not value:
            raise OptionsError(f"{arguments.name} needs {option}")
    for option, value in refused.items():
        if value:
            raise OptionsError(f"{option} does not work with {arguments.name}")
    is_growing = grows(arguments)
    if arguments.reader and not (is_growing and arguments.endpoint):
        raise OptionsError("--reader needs --endpoint, and --incremental or --follow")
    if arguments.until and is_growing:
        always = "archive is always incremental, and " if arguments.name == ARCHIVE else ""
        raise OptionsError(
            f"{always}--until does not work with an incremental run, which continues where the last one ended"
        )
    check_times(arguments)
    if arguments.max_per_batch and not is_growing:
        raise OptionsError("--max-per-batch needs --incremental or --follow: other runs have only one batch")
    if (arguments.publish or arguments.publish_reports) and not arguments.endpoint:
        raise OptionsError("--publish needs --endpoint: with --path, files are only read")
    if arguments.streams and arguments.stream_pattern:
        raise OptionsError("--streams and --stream-pattern contradict each other: give only one of them")


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the Spark source that the command line describes."""
    options = {
        **source_place(arguments),
        "streams": arguments.streams or _joined_streams(arguments),
        "streamPattern": arguments.stream_pattern,
        "pattern": arguments.pattern,
        "maxMessagesPerTrigger": str(arguments.max_per_batch) if arguments.max_per_batch else None,
        "minPartitions": str(arguments.min_partitions) if arguments.min_partitions else None,
        "failOnDataLoss": "false" if arguments.accept_loss else None,
    }
    reader = f"pipeline-{arguments.name}" if arguments.reader is None else arguments.reader
    if reader and arguments.endpoint and grows(arguments):
        options["reader"] = reader
    return given(options) | more_options(arguments)


def _joined_streams(arguments: argparse.Namespace) -> str | None:
    return f"{arguments.left},{arguments.right}" if arguments.name == JOIN and not arguments.stream_pattern else None


def grows(arguments: argparse.Namespace) -> bool:
    """Return whether the run adds to its table, as a streaming query."""
    return bool(arguments.follow or arguments.incremental or arguments.name == ARCHIVE)


def sink_options(arguments: argparse.Namespace, stream: str | None) -> dict[str, str]:
    """Return the options of the Spark sink that the command line describes."""
    options = {
        "endpoint": arguments.endpoint,
        "stream": stream,
        "serverKey": arguments.server_key,
        "secretKey": arguments.own_key,
    }
    return given(options) | (more_options(arguments) if arguments.name == RESTORE else {})


def results_place(arguments: argparse.Namespace) -> Place:
    """Return the place of the JSON files for the console."""
    from zambezi.spark.lake.place import Place  # noqa: PLC0415 - needs the extra
    from zambezi.spark.lake.table import OWN  # noqa: PLC0415
    from zambezi.spark.pipelines import PIPELINES  # noqa: PLC0415

    # Not among the files of a table: a program that reads a directory would take them for a part of it.
    beside = "results" if PIPELINES[arguments.name].table else f"{OWN}/results"
    return Place(arguments.results or f"{arguments.out.rstrip('/')}/{beside}", store_options(arguments))


def check_places(arguments: argparse.Namespace) -> None:
    """Raise an error if there is nothing to read, or if results cannot be written where they must be."""
    if arguments.name == RESTORE:
        from zambezi.spark.errors import OptionError  # noqa: PLC0415 - needs the extra
        from zambezi.spark.options import SINK, Options  # noqa: PLC0415

        sink = sink_options(arguments, None)
        try:
            Options(sink, SINK)
        except OptionError as error:
            raise OptionsError(str(error)) from error
        check_source(arguments, {"archive": arguments.archive})
        check_source(arguments, {name: value for name, value in sink.items() if name in _REACH})
        return
    from zambezi.spark.lake.place import Place  # noqa: PLC0415
    from zambezi.spark.lake.table import LakeTable  # noqa: PLC0415
    from zambezi.spark.pipelines import PIPELINES  # noqa: PLC0415
    from zambezi.spark.pipelines.files import place_of_page  # noqa: PLC0415
    from zambezi.spark.pipelines.running import check_table  # noqa: PLC0415

    pipeline, options = PIPELINES[arguments.name], source_options(arguments)
    settings = settings_of(arguments)
    present = check_source(arguments, options, is_growing=grows(arguments))
    for declared in settings.declared:
        if present is not None and not any(declared.covers(stream) for stream in present):
            warn(f"--declare {declared.streams}: no stream of this run has such a name")
    place = pipeline.place(arguments.out, store_options(arguments))
    outer = Place(arguments.out, store_options(arguments))
    if place.uri != outer.uri and outer.names("_delta_log"):
        raise OptionsError(f"--out {arguments.out} is a table itself: choose a directory for tables")
    check_table(LakeTable(place, pipeline.name), pipeline, options, settings, grows=grows(arguments))
    places = [place, results_place(arguments)]
    if arguments.csv:
        places.append(Place(arguments.csv))
    if arguments.report:
        places.append(place_of_page(arguments.report, store_options(arguments))[0])
    if arguments.store_option and all(one.local is not None for one in places):
        raise OptionsError("--store-option works only with an object store: --out is a directory")
    for one in places:
        one.check_writable()
