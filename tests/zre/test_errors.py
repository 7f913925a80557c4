"""zambezi.zre.errors: one family."""

import pytest

import zambezi.zre
from zambezi.errors import ZambeziError
from zambezi.zre import errors


@pytest.mark.parametrize("name", ["NoSuchPeer", "NodeStopped", "ZreError"])
def test_every_error_is_of_the_family_and_can_be_imported_from_the_package(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.ZreError)
    assert issubclass(kind, ZambeziError)
    assert getattr(zambezi.zre, name) is kind
