"""The batch reader: it reads the messages that exist when the query is planned.

Spark refuses a reader that implements `pushFilters` while `spark.sql.python.filterPushdown.enabled` is off, and off is
the default. To find out, Spark compares `reader.pushFilters.__func__` with the method of the base class. So our
`pushFilters` shows the method of the base class there, and implements the call itself: the reader takes filters if
Spark offers them, and no query fails if Spark does not.

It takes filters only with the option `pushFilters`. Spark 4.1 to 4.3 keep the last plan of a Python source in the
loaded table: after `table.where("sequence < 3").count()`, `table.count()` counts only the messages that the filter has
left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from zambezi.spark.archive_reader import Archive, join
from zambezi.spark.backend import SequenceRange, StreamState, trimmed_error
from zambezi.spark.base_reader import BaseReader, value_for
from zambezi.spark.columns import RecordBatch
from zambezi.spark.errors import OptionError, no_such_stream
from zambezi.spark.filters import PushedFilters
from zambezi.spark.options import EARLIEST, LATEST


class _PushFilters:
    """The method `pushFilters`, disguised as the method of the base class; the module's docstring says why."""

    def __init__(self, pushed_filters: PushedFilters, *, is_wanted: bool) -> None:
        self._pushed_filters = pushed_filters
        self._is_wanted = is_wanted
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._pushed_filters.push(filters) if self._is_wanted else filters


class BatchReader(BaseReader, DataSourceReader):
    """A reader for one batch query."""

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802 - Spark's name
        return _PushFilters(self.pushed_filters, is_wanted=self.options["pushFilters"])

    def partitions(self) -> Sequence[InputPartition]:
        try:
            return self._partitions()
        finally:
            self.close()

    def _partitions(self) -> Sequence[InputPartition]:
        archive = Archive(self.options) if "archive" in self.options else None
        archived = archive.positions if archive is not None else {}
        self.archived = frozenset(archived)
        present = self.streams() if self.has_backend else {}
        missing = [name for name in self.missing_streams(present) if name not in archived]
        if missing:
            raise no_such_stream(
                missing,
                {
                    *(archive.streams if archive is not None else ()),
                    *(self.backend.streams() if self.has_backend else ()),
                },
            )
        joined = {name: join(state, archived.get(name)) for name, state in present.items()}
        streams = {name: state for name, (state, _) in joined.items()}
        starts = self.starting_sequences(streams, EARLIEST)
        ends = self._ending_sequences(streams)
        ranges = []
        for name, state in streams.items():
            if ends[name] < starts[name] and "endingSequence" in self.options:
                raise OptionError(
                    f"option 'endingSequence' is {ends[name]} for stream {name!a}, before its first sequence to read, "
                    f"{starts[name] + 1}"
                )
            after = max(starts[name], joined[name][1])
            if after + 1 < present[name].first and starts[name] < ends[name]:
                self.handle_data_loss(trimmed_error(name, after, present[name].first))
                after = present[name].first - 1
            ranges.append(SequenceRange(name, state.incarnation, after, ends[name]))
        old = archive.partitions(self.pushed_filters, self.cores) if archive is not None else []
        return [*old, *self.plan_partitions(self._apply_filters(ranges), present)]

    def _ending_sequences(self, streams: dict[str, StreamState]) -> dict[str, int]:
        """Return, for each stream, the last sequence to read according to the options."""
        times = self.options["endingTimestamp"]
        if times is not None:
            self.check_stream_names("endingTimestamp", times, streams)
            after = {name: time + 1 for name in streams if (time := value_for(name, times, None)) is not None}
            found = self.last_before(streams, after)
            return {name: found.get(name, state.last) for name, state in streams.items()}
        given = self.options["endingSequence"]
        self.check_stream_names("endingSequence", given, streams)
        ends = {}
        for name, state in streams.items():
            end = value_for(name, given, LATEST)
            ends[name] = state.last if end in (LATEST, None) else int(end)
            if ends[name] > state.last:
                raise OptionError(
                    f"option 'endingSequence' is {end} for stream {name!a}, and its last sequence is {state.last}"
                )
        return ends

    def _apply_filters(self, ranges: list[SequenceRange]) -> list[SequenceRange]:
        """Return the parts of ranges that the pushed filters leave."""
        filters, no_filters = self.pushed_filters, PushedFilters()
        ranges = [one for one in ranges if one.count and filters.allow_stream(one.stream, one.incarnation)]
        names = [one.stream for one in ranges]
        starts = self.last_before(names, filters.min_time) if filters.min_time > no_filters.min_time else {}
        ends = self.last_before(names, filters.max_time + 1) if filters.max_time < no_filters.max_time else {}
        limited = [
            SequenceRange(
                one.stream,
                one.incarnation,
                max(one.after, filters.min_sequence - 1, starts.get(one.stream, 0)),
                min(one.last, filters.max_sequence, ends.get(one.stream, one.last)),
            )
            for one in ranges
        ]
        return [one for one in limited if one.count]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self.read_partition(partition)
