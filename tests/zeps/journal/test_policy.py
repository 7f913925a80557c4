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


def test_keeping_nothing_is_allowed() -> None:
    assert Policy(keep_bytes=0, keep_seconds=0.0).keep_bytes == 0


def test_a_policy_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().sync = "never"  # type: ignore[misc]
