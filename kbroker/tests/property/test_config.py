"""No text makes the settings raise anything but ConfigError."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kbroker.config import Config, ConfigError, read_properties, table


@given(st.sampled_from(sorted(table().broker)), st.text(max_size=40))
def test_any_text_for_a_broker_setting_is_read_or_refused(name: str, text: str) -> None:
    try:
        config = Config({name: text})
    except ConfigError:
        return
    config.describe_broker()


@given(st.dictionaries(st.sampled_from(sorted(table().topic)) | st.text(max_size=9), st.text(max_size=40), max_size=3))
def test_any_topic_overrides_are_usable_or_refused(overrides: dict[str, str]) -> None:
    config = Config()
    if config.check_topic_overrides(dict(overrides)) is None:
        config.topic_config(overrides)
        config.describe_topic(overrides)


@given(st.text(max_size=200))
def test_any_properties_file_can_be_read(tmp_path_factory, text: str) -> None:  # type: ignore[no-untyped-def]
    file: Path = tmp_path_factory.getbasetemp() / "any.properties"
    file.write_text(text, encoding="utf-8", errors="replace")
    read_properties(file)
