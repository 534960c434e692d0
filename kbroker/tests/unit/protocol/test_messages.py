import copy
import subprocess
import sys

import pytest

from kbroker.protocol import messages, records


def test_a_module_is_loaded_when_one_of_its_classes_is_first_asked_for() -> None:
    program = (
        "import sys; from kbroker.protocol import messages, records\n"
        "messages.MetadataRequest\n"
        "prefixes = ('kbroker.protocol.messages.', 'kbroker.protocol.records.')\n"
        "print(sorted(name for name in sys.modules if name.startswith(prefixes)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['kbroker.protocol.messages.k03_metadata']"


def test_a_name_that_is_no_message_is_not_found() -> None:
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        messages.NoSuchRequest  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from kbroker.protocol.records import NoSuchRecord  # type: ignore[attr-defined]  # noqa: F401


def test_messages_are_equal_by_value_can_be_copied_and_take_no_other_attributes() -> None:
    record = records.TopicRecord(name="t", topic_id=bytes(16))
    assert copy.copy(record) == record
    assert record != records.TopicRecord(name="u", topic_id=bytes(16))
    assert record != records.RemoveTopicRecord(topic_id=bytes(16))
    with pytest.raises(AttributeError):
        record.colour = "red"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(record)


def test_a_record_is_matched_by_its_fields() -> None:
    record: object = records.TopicRecord(name="t", topic_id=bytes(16))
    match record:
        case records.TopicRecord(name=name):
            assert name == "t"
        case _:
            pytest.fail("not matched")
