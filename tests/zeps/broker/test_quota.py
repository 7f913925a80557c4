"""zambezi.zeps.broker.quota: how much each user, or each address, can do in an hour."""

import pytest

from zambezi.zeps.broker.quota import HOUR, Quota, site_of


def test_each_key_has_its_own_bucket() -> None:
    quota = Quota(3)
    assert [quota.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert quota.allows("b", 0.0)
    assert quota.take("b", 0.0)
    assert not quota.allows("a", HOUR / 3 - 1)
    assert quota.take("a", HOUR / 3)
    assert not quota.take("a", HOUR / 3)
    assert [quota.take("a", 9 * HOUR) for _ in range(4)] == [True, True, True, False]


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    quota = Quota(1)
    assert quota.take("a", HOUR)
    assert not quota.take("a", 0.0)


def test_keys_are_forgotten_after_an_hour() -> None:
    quota = Quota(10)
    for hour in range(20):
        for number in range(1000):
            assert quota.take(f"{hour}.{number}", hour * HOUR)
        assert len(quota) <= 4000


@pytest.mark.parametrize(
    ("address", "site"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
        ("test", "test"),
    ],
)
def test_addresses_of_one_site_are_one(address: str, site: str) -> None:
    assert site_of(address) == site
