"""zambezi.mcollective.errors: one family."""

import pytest

import zambezi.mcollective
from zambezi.errors import ZambeziError
from zambezi.mcollective import errors


@pytest.mark.parametrize(
    "name", ["ActionFailed", "AgentError", "ArchiveError", "CommandRefused", "RuleError", "Unconfirmed"]
)
def test_every_error_is_of_the_family_and_can_be_imported_from_the_package(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.McollectiveError)
    assert issubclass(kind, ZambeziError)
    assert getattr(zambezi.mcollective, name) is kind


def test_a_malformed_message_has_its_id_where_that_could_be_read() -> None:
    assert errors.Malformed("no verb", b"7").id == b"7"
    assert errors.Malformed("no verb").id is None
