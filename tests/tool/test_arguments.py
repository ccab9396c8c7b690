"""The arguments of the agent tool: what is taken, what is refused, by which name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from sessioncache import (
    DurableTierUnavailableError,
    HotTierUnavailableError,
    InvalidNameError,
    InvalidValueError,
    LimitExceededError,
    NoSessionError,
    StaleLeaseError,
    errors,
)
from sessioncache.tool.arguments import ToolCall, from_text, parse
from sessioncache.tool.replies import as_text, explanation, shown

GET = {"operation": "get", "namespace": "n", "key": "k"}
SET = {"operation": "set", "namespace": "n", "key": "k", "value": "v"}
LIST = {"operation": "list", "namespace": "n"}
CLEAR = {"operation": "clear", "namespace": "n"}


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (GET, ToolCall("get", "n", "k")),
        (SET, ToolCall("set", "n", "k", "v")),
        (SET | {"value": ""}, ToolCall("set", "n", "k", "")),
        (SET | {"value": "null"}, ToolCall("set", "n", "k", "null")),
        (SET | {"value": "a\0\ud800"}, ToolCall("set", "n", "k", "a\0\ud800")),
        (GET | {"operation": "delete"}, ToolCall("delete", "n", "k")),
        (LIST, ToolCall("list", "n")),
        (GET | {"value": None}, ToolCall("get", "n", "k")),
        (GET | {"value": ""}, ToolCall("get", "n", "k")),
        (CLEAR | {"key": None, "value": None}, ToolCall("clear", "n")),
        (CLEAR | {"key": "", "value": ""}, ToolCall("clear", "n")),
        (MappingProxyType(GET), ToolCall("get", "n", "k")),
    ],
)
def test_a_request_and_nulls_and_empty_texts_where_nothing_is_taken(arguments: Any, request_: ToolCall) -> None:
    assert parse(arguments) == request_


@pytest.mark.parametrize(
    ("arguments", "kind", "path", "says"),
    [
        ({}, InvalidValueError, "operation", "operation is missing: one of get, set, delete, list, clear"),
        ({"namespace": "n", "operation": None}, InvalidValueError, "operation", "missing"),
        (GET | {"operation": "GET"}, InvalidValueError, "operation", "unknown operation 'GET'"),
        (GET | {"operation": ""}, InvalidValueError, "operation", "unknown operation ''"),
        (GET | {"operation": ["get"]}, InvalidValueError, "operation", "unknown operation"),
        ({"operation": "get", "key": "k"}, InvalidNameError, "namespace", "namespace is missing: get needs it"),
        (GET | {"namespace": ""}, InvalidNameError, "namespace", "must not be empty"),
        (GET | {"namespace": 1}, InvalidNameError, "namespace", "must be a str, not int"),
        (GET | {"namespace": "a\0"}, InvalidNameError, "namespace", "NUL"),
        (GET | {"namespace": "\ud800"}, InvalidNameError, "namespace", "lone surrogate"),
        (GET | {"namespace": "x" * 257}, InvalidNameError, "namespace", "at most 256"),
        (LIST | {"operation": "get"}, InvalidNameError, "key", "key is missing: get needs it"),
        (SET | {"key": None}, InvalidNameError, "key", "key is missing: set needs it"),
        (SET | {"key": ""}, InvalidNameError, "key", "must not be empty"),
        (SET | {"key": ["k"]}, InvalidNameError, "key", "must be a str, not list"),
        (GET | {"operation": "set"}, InvalidValueError, "value", "value is missing: set needs it"),
        (SET | {"value": None}, InvalidValueError, "value", "missing"),
        (SET | {"value": 42}, InvalidValueError, "value", "must be a string, not int"),
        (SET | {"value": {"a": 1}}, InvalidValueError, "value", "must be a string, not dict"),
        (SET | {"value": "\ud83d\ude00"[:1] + "\ude00"}, InvalidValueError, "value", "surrogate"),
        (GET | {"value": "v"}, InvalidValueError, "value", "get takes no value"),
        (GET | {"value": 0}, InvalidValueError, "value", "get takes no value"),
        (CLEAR | {"key": "k"}, InvalidValueError, "key", "clear takes no key"),
        (LIST | {"value": "v"}, InvalidValueError, "value", "list takes no value"),
        (GET | {"session_id": "s2"}, InvalidNameError, "session_id", "unknown arguments: 'session_id'; there are"),
        (GET | {"user": None}, InvalidNameError, "user", "'user'"),
        (GET | {1: "x"}, InvalidNameError, "1", "unknown arguments: 1;"),
        ({"Operation": "get"}, InvalidNameError, "Operation", "'Operation'"),
        (None, InvalidValueError, "", "must be an object"),
        ([GET], InvalidValueError, "", "must be an object"),
        ("get", InvalidValueError, "", "must be an object"),
    ],
)
def test_what_is_wrong_is_refused_by_name(arguments: Any, kind: type[Any], path: str, says: str) -> None:
    with pytest.raises(kind) as told:
        parse(arguments)
    assert told.value.path == path
    assert says in str(told.value)
    assert explanation(told.value) == str(told.value)


def test_a_value_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceededError):
        parse(SET | {"value": "x" * 1024 * 1024})


def test_a_refusal_repeats_no_value_and_no_long_name() -> None:
    for wrong in (
        SET | {"value": ["secret"]},
        GET | {"value": "secret"},
        {"secret" * 1000: 1},
        {"operation": "a" * 9999},
    ):
        with pytest.raises((InvalidNameError, InvalidValueError)) as told:
            parse(wrong)
        assert "['secret']" not in str(told.value)
        assert len(str(told.value)) < 200


def test_arguments_may_come_as_text() -> None:
    assert from_text('{"operation": "get", "namespace": "\\ud800"}') == {"operation": "get", "namespace": "\ud800"}
    assert from_text(GET) is GET


@pytest.mark.parametrize(
    "text",
    [
        "",
        "get",
        "[]",
        "null",
        '"x"',
        "{",
        '{"operation": "list", "operation": "clear"}',
        "[" * 100_000,
        "1" * 5000,
        "{'a': 1}",
    ],
    ids=range(10),
)
def test_what_is_no_json_object_or_names_something_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError) as told:
        from_text(text)
    assert told.value.path == ""
    assert explanation(told.value)


def test_a_model_is_told_of_no_machinery_and_the_program_of_what_ends_a_run() -> None:
    for away in (HotTierUnavailableError, DurableTierUnavailableError):
        told = explanation(away("cannot reach redis://10.0.0.1:6379"))
        assert told is not None
        assert "out of reach" in told
        assert "10.0.0.1" not in told
    for error in (NoSessionError(), StaleLeaseError(), errors.ConfigurationError(), errors.SchemaVersionError()):
        assert explanation(error) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("42", "42"),
        ('"42"', '"42"'),
        (None, "null"),
        (True, "true"),
        (1.0, "1.0"),
        (2**70, "1180591620717411303424"),
        ({"b": [1, 0.1], "a": "é"}, '{"b":[1,0.1],"a":"é"}'),
        (["\ud800"], '["\\ud800"]'),
    ],
)
def test_a_value_is_shown_as_its_text_or_as_its_json(value: Any, text: str) -> None:
    assert shown(value) == text


def test_a_reply_is_readable_and_can_always_be_encoded() -> None:
    assert as_text({"value": "é😀"}) == '{"value": "é😀"}'
    assert as_text({"value": "é\ud800"}) == '{"value": "\\u00e9\\ud800"}'
