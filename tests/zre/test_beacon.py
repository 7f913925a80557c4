"""zambezi.zre.beacon: 22 bytes, and nothing else."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from zambezi.zre.beacon import Beacon


@given(st.uuids(), st.integers(0, 65535))
def test_a_beacon_is_read_as_it_was_written(uuid: UUID, port: int) -> None:
    octets = Beacon(uuid, port).encode()
    assert len(octets) == 22
    assert Beacon.decode(octets) == Beacon(uuid, port)


@given(st.binary(max_size=40))
def test_other_bytes_are_no_beacon(octets: bytes) -> None:
    beacon = Beacon.decode(octets)
    assert beacon is None or beacon.encode() == octets
