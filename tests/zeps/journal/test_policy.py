"""zambezi.zeps.journal.policy: the values that a policy can have."""

import dataclasses

import pytest

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Policy


@pytest.mark.parametrize(
    "wrong",
    [
        {"sync": "sometimes"},
        {"interval": 0},
        {"segment": 0},
        {"batch": -1},
        {"batch": 1 << 30},
        {"keep_bytes": -1},
        {"keep_seconds": -1},
    ],
)
def test_a_wrong_value_is_an_error_that_names_it(wrong: dict[str, object]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(JournalError, match=f"^{name} is {value!r}: it must be "):
        Policy(**wrong)  # type: ignore[arg-type]


def test_by_default_all_is_kept() -> None:
    policy = Policy()
    assert (policy.sync, policy.keep_bytes, policy.keep_seconds) == ("always", None, None)


@pytest.mark.parametrize(
    ("keep", "segment"), [(None, 256 << 20), (100 << 30, 256 << 20), (8 << 20, 1 << 20), (1000, 1 << 16), (0, 1 << 16)]
)
def test_what_is_kept_decides_the_size_of_segments(keep: int | None, segment: int) -> None:
    assert Policy(keep_bytes=keep).segment_bytes == segment
    assert Policy(keep_bytes=keep, segment=400).segment_bytes == 400


def test_a_segment_that_is_compacted_when_it_is_full_is_small() -> None:
    assert Policy(compact=True).segment_bytes == 8 << 20
    assert Policy(compact=True, keep_seconds=3600.0).segment_bytes == 256 << 20
    assert Policy(compact=True, keep_bytes=8 << 30).segment_bytes == 256 << 20


@pytest.mark.parametrize(("keep", "seconds"), [(None, 2**63 // 10**6), (80.0, 10), (1.0, 5)])
def test_what_is_kept_decides_the_time_of_segments(keep: float | None, seconds: int) -> None:
    assert Policy(keep_seconds=keep).segment_microseconds // 10**6 == seconds


def test_keeping_nothing_is_allowed() -> None:
    assert Policy(keep_bytes=0, keep_seconds=0.0).keep_bytes == 0


def test_a_policy_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().sync = "never"  # type: ignore[misc]
