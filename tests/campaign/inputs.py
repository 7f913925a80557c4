"""Mutated inputs through every parser and session, in memory and with seeds that repeat a run.

Three things must hold for each input: only the declared errors are raised, the memory that it takes stays below a
bound, and lawful sessions work afterwards. Inputs that take longer than `SLOW` seconds are reported.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import re
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from bench.report import table
from tests.campaign.target import Input, Target
from tests.campaign.targets import TARGETS

CHUNK: Final = 1000  # inputs that share a seed, and after which something lawful is tried
MEASURED: Final = 50  # one chunk in so many is run with the memory of each input measured
ALLOWED: Final = 4 << 20  # bytes that one input may take at its peak: inputs have a few kilobytes
KEPT: Final = 8 << 20  # bytes that a target may keep after a chunk: its bounds are small
SLOW: Final = 1.0  # seconds
HUNG: Final = 120.0  # seconds, after which a chunk prints where it is, and the process ends
REPORTED: Final = 20  # failures of one target


@dataclass
class Failure:
    """An input with which something did not hold."""

    target: str
    chunk: int
    problem: str
    where: str
    history: list[Input]

    def __str__(self) -> str:
        inputs = [repr(each)[:400] for each in self.history[-25:]]
        return f"{self.target}, chunk {self.chunk}: {self.problem}\n{self.where}\n  inputs: " + "\n    ".join(inputs)


@dataclass
class Result:
    """The figures of one target."""

    target: str
    inputs: int = 0
    refused: int = 0  # inputs that raised a declared error
    seconds: float = 0.0
    longest: float = 0.0  # seconds of one input
    peak: int = 0  # bytes of one input, of those that were measured
    kept: int = 0  # bytes that were left after a measured chunk
    slow: list[tuple[float, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.inputs += other.inputs
        self.refused += other.refused
        self.seconds += other.seconds
        self.longest = max(self.longest, other.longest)
        self.peak = max(self.peak, other.peak)
        self.kept = max(self.kept, other.kept)
        self.slow += other.slow
        self.failures += other.failures


class Run:
    """One target, and the chunks of inputs that it gets."""

    def __init__(self, name: str, seed: int, size: int = CHUNK, make: Callable[[Random], Target] | None = None) -> None:
        self._make = make or TARGETS[name][1]
        self._seed = seed
        self._size = size  # of a chunk
        self.result = Result(name)

    def run(self, chunks: Iterable[int]) -> Result:
        """Run chunks of inputs. Each chunk has its own seed and its own target, so that it can be repeated alone."""
        for chunk in chunks:
            faulthandler.dump_traceback_later(HUNG, exit=True)
            try:
                self._run_chunk(chunk)
            finally:
                faulthandler.cancel_dump_traceback_later()
        return self.result

    def _run_chunk(self, chunk: int) -> None:
        target = self._make(Random(f"{self._seed}/{self.result.target}/{chunk}"))
        began = time.perf_counter()
        try:
            if chunk % MEASURED:
                self._feed(target, chunk)
            else:
                self._measure(target, chunk)
        finally:
            target.close()
        self.result.seconds += time.perf_counter() - began

    def _feed(self, target: Target, chunk: int) -> None:
        clock = time.perf_counter
        result = self.result
        errors = target.errors
        feed = target.feed
        longest = result.longest
        for _ in range(self._size):
            before = clock()
            try:
                feed()
            except errors:
                result.refused += 1
            except Exception as error:
                self._fail(target, chunk, error)
            took = clock() - before
            if took > longest:
                longest = took
                if took > SLOW:
                    result.slow.append((took, repr(target.history[-1:])[:400]))
        result.longest = longest
        result.inputs += self._size
        self._check(target, chunk)

    def _measure(self, target: Target, chunk: int) -> None:
        """Feed a chunk with `tracemalloc`, which makes it several times slower."""
        gc.collect()
        tracemalloc.start()
        try:
            first, _ = tracemalloc.get_traced_memory()
            for _ in range(self._size):
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                try:
                    target.feed()
                except target.errors:
                    self.result.refused += 1
                except Exception as error:
                    self._fail(target, chunk, error)
                _, peak = tracemalloc.get_traced_memory()
                self._check_memory(target, chunk, peak - before)
            self.result.inputs += self._size
            self._check(target, chunk)
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0] - first
        finally:
            tracemalloc.stop()
        self.result.kept = max(self.result.kept, kept)
        if kept > KEPT:
            self._note(target, chunk, f"{kept} bytes are kept after {self._size} inputs", "", [])

    def _check_memory(self, target: Target, chunk: int, peak: int) -> None:
        self.result.peak = max(self.result.peak, peak)
        if peak > ALLOWED:
            self._note(target, chunk, f"one input took {peak} bytes", "", target.history)

    def _check(self, target: Target, chunk: int) -> None:
        try:
            target.check()
        except Exception as error:
            self._fail(target, chunk, error)

    def _fail(self, target: Target, chunk: int, error: Exception) -> None:
        places = traceback.extract_tb(error.__traceback__)
        where = "".join(traceback.format_list(places[-4:]))
        self._note(target, chunk, f"{type(error).__name__}: {error}"[:300], where, target.history)
        target.renew()

    def _note(self, target: Target, chunk: int, problem: str, where: str, history: Sequence[Input]) -> None:
        failures = self.result.failures
        kind = _without_numbers(problem)
        known = any(one.where == where and _without_numbers(one.problem) == kind for one in failures)
        if not known and len(failures) < REPORTED:
            failures.append(Failure(self.result.target, chunk, problem, where, list(history)))


def _without_numbers(text: str) -> str:
    return re.sub(r"[0-9]+", "#", text)


def shares(names: Sequence[str], inputs: int) -> dict[str, int]:
    """Return the number of chunks of each target: at least one."""
    total = sum(TARGETS[name][0] for name in names)
    return {name: max(1, round(inputs * TARGETS[name][0] / total / CHUNK)) for name in names}


def _part(arguments: tuple[str, int, int, int, int]) -> Result:
    name, seed, first, step, count = arguments
    return Run(name, seed).run(range(first, count, step))


def run_inputs(
    inputs: int,
    seed: int,
    processes: int = 1,
    names: Sequence[str] = (),
    progress: Callable[[str], object] = lambda _: None,
) -> list[Result]:
    """Run about so many inputs through the targets, in one process or in several."""
    counts = shares(names or list(TARGETS), inputs)
    parts = [(name, seed, first, processes, count) for name, count in counts.items() for first in range(processes)]
    results = {name: Result(name) for name in counts}
    if processes == 1:
        _collect(map(_part, parts), results, progress)
    else:
        with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
            _collect(pool.imap_unordered(_part, parts), results, progress)
    return list(results.values())


def _collect(parts: Iterable[Result], results: dict[str, Result], progress: Callable[[str], object]) -> None:
    for each in parts:
        results[each.target].add(each)
        progress(f"{sum(one.inputs for one in results.values()):,} inputs")


def repeat_chunk(name: str, seed: int, chunk: int) -> Result:
    """Run one chunk again."""
    return Run(name, seed).run([chunk])


def report(results: Sequence[Result]) -> str:
    """Return the figures as a table."""
    heads = ["target", "inputs", "refused", "inputs/s", "longest", "peak memory", "failures"]
    rows = [
        [
            one.target,
            f"{one.inputs:,}",
            f"{100 * one.refused / max(1, one.inputs):.0f} %" if one.refused else "-",
            f"{one.inputs / max(1e-9, one.seconds):,.0f}",
            f"{one.longest * 1000:.1f} ms",
            f"{one.peak / 1024:.0f} KiB",
            str(len(one.failures)),
        ]
        for one in results
    ]
    inputs = sum(one.inputs for one in results)
    failures = sum(len(one.failures) for one in results)
    rows.append(["all", f"{inputs:,}", "", "", "", "", str(failures)])
    return table(heads, rows)
