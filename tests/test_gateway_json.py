"""JSON as the embedded gateway reads it: the messages and numbers below are what V8 says and makes of each text."""

from __future__ import annotations

from typing import Any

import pytest

from mantyx_sync.local.gateway_json import BadJson, js_length, js_text, parse, to_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{bad", "Expected property name or '}' in JSON at position 1 (line 1 column 2)"),
        ("{", "Expected property name or '}' in JSON at position 1 (line 1 column 2)"),
        ('{"a":1,}', "Expected double-quoted property name in JSON at position 7 (line 1 column 8)"),
        ('{"a" 1}', "Expected ':' after property name in JSON at position 5 (line 1 column 6)"),
        ('{"a":1,"b" 1}', "Unexpected number in JSON at position 11 (line 1 column 12)"),
        ('{"a":1,"b" "c"}', "Unexpected string in JSON at position 11 (line 1 column 12)"),
        ('{"a":1,"b"', "Unexpected end of JSON input"),
        ('{"a":', "Unexpected end of JSON input"),
        ("  \n", "Unexpected end of JSON input"),
        ('{"a":1', "Expected ',' or '}' after property value in JSON at position 6 (line 1 column 7)"),
        ("[1 2]", "Expected ',' or ']' after array element in JSON at position 3 (line 1 column 4)"),
        ("[1,]", "Unexpected token ']', \"[1,]\" is not valid JSON"),
        ('["a', "Unterminated string in JSON at position 3 (line 1 column 4)"),
        ('["a\\', "Unexpected end of JSON input"),
        ('["a\nb"]', "Bad control character in string literal in JSON at position 3 (line 1 column 4)"),
        ('["\\x"]', "Bad escaped character in JSON at position 3 (line 1 column 4)"),
        ('["\\u12g4"]', "Bad Unicode escape in JSON at position 6 (line 1 column 7)"),
        ("[-]", "No number after minus sign in JSON at position 2 (line 1 column 3)"),
        ("[01]", "Unexpected number in JSON at position 2 (line 1 column 3)"),
        ("[1.]", "Unterminated fractional number in JSON at position 3 (line 1 column 4)"),
        ("[1e+]", "Exponent part is missing a number in JSON at position 4 (line 1 column 5)"),
        ("[]x", "Unexpected non-whitespace character after JSON at position 2 (line 1 column 3)"),
        ("[tru]", "Unexpected token ']', \"[tru]\" is not valid JSON"),
        ("[NaN]", "Unexpected token 'N', \"[NaN]\" is not valid JSON"),
        ('{"a":undefined,"b":1,"c":2}', 'Unexpected token \'u\', "{"a":undefined,"... is not valid JSON'),
        ('{"abcdefghij":undefined,"b":1}', 'Unexpected token \'u\', ..."cdefghij":undefined,"... is not valid JSON'),
        ('{"abcdefghij":12345,"b":no}', 'Unexpected token \'o\', ..."2345,"b":no}" is not valid JSON'),
        ('{"a":1,\r\n "é😀" 2}', "Unexpected number in JSON at position 16 (line 2 column 8)"),
        # Bodies are objects or arrays: what else parses is refused as well.
        ("true", "Unexpected token 't', \"true\" is not valid JSON"),
        ('"x"', 'Unexpected token \'"\', ""x"" is not valid JSON'),
    ],
)
def test_malformed_bodies_get_the_parsers_message(text: str, message: str) -> None:
    with pytest.raises(BadJson) as caught:
        parse(text.encode())
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("[4200.0,-0.0,1e2,0.5]", "[4200,0,100,0.5]"),
        ("[9007199254740993,12345678901234567890]", "[9007199254740992,12345678901234567000]"),
        ("[1e20,1e21,1e22]", "[100000000000000000000,1e+21,1e+22]"),
        ("[1e400,-1e400]", "[null,null]"),
        ('["\\u00e9\\ud83d\\ude00\\u2028"]', '["é😀\u2028"]'),
        ('["\\ud83d"]', '["\\ud83d"]'),
        ('{"b":1,"a":{"b":2},"b":3}', '{"b":3,"a":{"b":2}}'),
        ("", "{}"),
        ("\ufeff[1]", "[1]"),
        (" \t\r\n{} ", "{}"),
    ],
)
def test_values_come_out_as_from_javascript(text: str, written: str) -> None:
    assert to_json(parse(text.encode())) == written


def test_a_number_of_any_length_is_read() -> None:
    assert parse(b"[" + b"9" * 5000 + b"]") == [None]


def test_invalid_utf_8_is_replaced() -> None:
    assert parse(b'["a\xff"]') == ["a\ufffd"]


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(BadJson, match="nested too deeply"):
        parse(b"[" * 200_000 + b"]" * 200_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [("x", "x"), (5, "5"), (True, "true"), (None, "null"), ({"a": 1}, "[object Object]"), ([1, None, "b"], "1,,b")],
)
def test_values_are_named_as_a_template_string_does(value: Any, text: str) -> None:
    assert js_text(value) == text
    assert js_text() == "undefined"


def test_characters_are_counted_in_utf_16_units() -> None:
    assert [js_length(text) for text in ("", "é", "😀")] == [0, 1, 2]
