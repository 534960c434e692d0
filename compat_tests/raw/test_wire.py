"""Every version of every API that kbroker serves: the same frames to both brokers, the answers compared."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from compat_tests.harness import Broker, DiffersError, Results, compare
from compat_tests.raw import (
    absurd_cases,
    commit_cases,
    config_cases,
    consumer_group_cases,
    delete_cases,
    fetch_cases,
    frame_cases,
    group_cases,
    life_cases,
    log_dir_cases,
    offset_cases,
    produce_cases,
    produced_transaction_cases,
    topic_cases,
    transaction_cases,
    transactional_cases,
)
from compat_tests.raw.cases import CASES, Case
from compat_tests.raw.connection import Connection, key_of, versions_of
from compat_tests.raw.frame_cases import SERVED
from compat_tests.raw.talk import Talk

_MODULES = (
    produce_cases,
    produced_transaction_cases,
    fetch_cases,
    offset_cases,
    group_cases,
    absurd_cases,
    commit_cases,
    delete_cases,
    topic_cases,
    config_cases,
    consumer_group_cases,
    life_cases,
    log_dir_cases,
    transactional_cases,
    frame_cases,
    transaction_cases,
)  # imported for what they register
_MATRIX = [(api, version) for api in SERVED for version in versions_of(api)]


def _hold(case: Case, version: int, again: str, broker: Broker) -> dict[str, Any]:
    words = re.sub(r"[^a-z0-9]+", "-", f"{case.api}-{version}-{case.name}".lower())
    talk = Talk(broker.bootstrap, words[:90] + again)
    try:
        case.run(talk, version)
    finally:
        talk.close()
    return talk.said


@pytest.mark.parametrize(("api", "version"), _MATRIX, ids=[f"{api}-v{version}" for api, version in _MATRIX])
def test_an_answer_on_the_wire_is_the_same(
    *, api: str, version: int, results: Results, brokers: dict[str, Broker], again: str
) -> None:
    cases = [case for case in CASES if case.api == api and version in case.versions]
    assert cases, f"no case for {api} v{version}"
    failures = []
    for case in cases:
        try:
            hold = partial(_hold, case, version, again)
            compare(results, f"wire {api}", f"v{version}, {case.name}", brokers, hold)
        except DiffersError as differs:
            failures.append(str(differs))
        except Exception as error:
            failures.append(f"{api} v{version}, {case.name}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


def test_what_is_advertised_is_kafkas_own_range(brokers: dict[str, Broker]) -> None:
    told = {}
    for name, broker in brokers.items():
        connection = Connection(broker.bootstrap)
        answer = connection.ask("ApiVersions", 0, {})
        connection.close()
        assert isinstance(answer, dict)
        told[name] = {one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]}
        assert name != "kbroker" or {one["api_key"] for one in answer["api_keys"]} == {key_of(api) for api in SERVED}
    apache = told.get("apache", {})
    ours = told.get("kbroker", apache)
    assert {key: ours.get(key) for key in ours} == {key: apache.get(key) for key in ours}
