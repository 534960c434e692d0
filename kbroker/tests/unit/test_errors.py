import pytest

from kbroker import errors
from kbroker._core.errors import Err


def test_every_code_but_none_has_its_own_exception() -> None:
    for member in Err:
        if member != Err.NONE:
            made = errors.by_code(member)
            assert (made.code, made.name) == (member.value, member.name)
            assert getattr(errors, made.__name__) is made
            assert issubclass(made, errors.KafkaError)


def test_an_error_says_whether_to_retry_and_to_refresh_first() -> None:
    unknown = errors.UnknownTopicOrPartitionError
    assert (unknown.code, unknown.retriable, unknown.refresh_metadata) == (3, True, True)
    assert not errors.InvalidTopicError.retriable


def test_an_error_without_a_message_is_called_by_kafkas_name() -> None:
    assert str(errors.NotCoordinatorError()) == "NOT_COORDINATOR"
    raised = errors.NotCoordinatorError("group g has moved")
    assert (str(raised), raised.message) == ("group g has moved", "group g has moved")


def test_a_message_that_quotes_a_client_at_length_still_fits_a_string_of_the_wire() -> None:
    raised = errors.InvalidTopicError("\N{GRINNING FACE}" * 32_767)
    assert raised.message is not None
    assert raised.message.endswith("…")
    assert len(raised.message.encode()) <= 32_767


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert errors.by_code(9999) is errors.UnknownServerError
    assert errors.name_of(9999) == "UNKNOWN(9999)"
    with pytest.raises(ValueError, match="no error"):
        errors.by_code(0)


def test_a_name_that_is_no_error_is_not_found() -> None:
    with pytest.raises(AttributeError):
        errors.NoSuchError  # type: ignore[attr-defined]  # noqa: B018
