"""Check JSON values against JSON Schemas. The only module that imports jsonschema, and only when it must.

What callers can rely on, whichever jsonschema from 3.2 on is installed:

- A schema is copied, checked once and its validator kept; changing the original afterwards changes nothing.
- Nothing is ever fetched. A `$ref` that leads out of the document, or nowhere, switches the checking of that
  schema off with one warning: a tool that cannot be checked is better than one that cannot be called.
- The dialect is the one `$schema` names; otherwise the newest one known, or draft 4 where only that one takes
  the schema (its `exclusiveMaximum: true`). `1.0` is an integer from draft 6 on, `true` never is.
- `format` is checked for the words in `formats.FORMATS` and is a comment otherwise.
- `nullable: true` (OpenAPI) lets null through.
- A schema of another party is checked against for a limited time, and slow expressions in it are left out.
- Recursion without end, in the schema or in the value, is a problem of the value, never a `RecursionError`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import threading
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from mantyx_sync import mismatch, schema_effort
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.formats import FORMATS

__all__ = ["SchemaChecker", "copy_schema"]

_log = logging.getLogger(__name__)

# `$schema` without its trailing '#' -> the validator of jsonschema; which of them exist depends on the version.
_DIALECTS = {
    "http://json-schema.org/draft-03/schema": "Draft3Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}
_NEWEST_FIRST = ("Draft202012Validator", "Draft201909Validator", "Draft7Validator")


def copy_schema(schema: object, label: str) -> Dict[str, Any]:
    """Return a deep copy of a JSON Schema that shares nothing with the original.

    Args:
        schema: The schema as its owner gave it.
        label: What the schema belongs to, for the message.

    Raises:
        MantyxConfigError: It is not a mapping, or not JSON.
    """
    if not isinstance(schema, Mapping):
        raise MantyxConfigError(f"{label}: a JSON Schema is a mapping, not {type(schema).__name__}")
    try:
        # allow_nan: a bare NaN in a spec would make the whole request invalid JSON.
        return json.loads(json.dumps(dict(schema), allow_nan=False, default=_plain_mapping))  # type: ignore[no-any-return]
    except (TypeError, ValueError, RecursionError) as exc:
        raise MantyxConfigError(f"{label}: the schema is not JSON ({_reason(exc)})") from exc


class SchemaChecker:
    """A JSON Schema with its kept validator. Safe to share between threads.

    Args:
        schema: The schema; it is copied.
        label: What it belongs to, such as `tool 'search'`. Messages start with it.
        foreign: True for a schema that came from another party (an MCP server): if it is no valid schema, it
            is not checked against, with one warning. Otherwise it is refused here and now.
        words: Turns the errors of jsonschema, which come one by one, into sentences; None uses our own words.

    Raises:
        MantyxConfigError: The schema is not JSON, or (unless `foreign`) not a valid JSON Schema.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        *,
        label: str,
        foreign: bool = False,
        words: Optional[Callable[[Iterator[Any]], List[str]]] = None,
    ) -> None:
        self.label = label
        self._words = words or _sentences
        self.schema = copy_schema(schema, label)
        self._foreign = foreign
        self._validator: Any = None
        self._enabled = True
        self._lock = threading.Lock()
        # A resolver of jsonschema before 4.18 keeps a stack of scopes: one thread at a time may use it.
        self._one_at_a_time = False
        if not foreign:
            self._build()

    @property
    def enabled(self) -> bool:
        """False once checking was switched off; the log has one warning that says why."""
        return self._enabled

    def problems(self, value: object) -> List[str]:
        """Return what is wrong with `value`, at most a few sentences; an empty list if it fits."""
        if self._validator is None and self._enabled:
            with self._lock:
                if self._validator is None and self._enabled:
                    self._build()
        if not self._enabled:
            return []
        try:
            if self._one_at_a_time:
                with self._lock:
                    return self._find(value)
            return self._find(value)
        except schema_effort.Exhausted:
            self._switch_off(f"that takes longer than {schema_effort.MAX_SECONDS:g} seconds")
            return []
        except RecursionError:
            return [f"the value or its schema is {mismatch.TOO_DEEP}"]
        except ArithmeticError:  # an infinite or huge number met `multipleOf`
            return ["a number in the value is out of range"]
        except Exception as exc:  # the library's ways to say "unresolvable" differ from version to version
            self._switch_off(_reason(exc))
            return []

    def problem(self, value: object) -> Optional[str]:
        """Return what is wrong with `value` in one line, or None if it fits."""
        found = self.problems(value)
        return mismatch.join(found) if found else None

    def _find(self, value: object) -> List[str]:
        with schema_effort.patience() if self._foreign else contextlib.nullcontext():
            return self._words(self._validator.iter_errors(value))

    def _build(self) -> None:
        try:
            import jsonschema
        except ImportError as exc:  # its compiled dependency is missing on some platforms
            self._switch_off(f"jsonschema cannot be imported: {exc}")
            return
        try:
            validator_class = _validator_class(self.schema, jsonschema)
        except jsonschema.SchemaError as exc:
            reason = f"it is not a valid JSON Schema: {_where(exc.path)}{mismatch.cut(exc.message)}"
            if not self._foreign:
                raise MantyxConfigError(f"{self.label}: {reason}") from None
            self._switch_off(reason)
            return
        except RecursionError:
            if not self._foreign:
                raise MantyxConfigError(f"{self.label}: the schema is {mismatch.TOO_DEEP}") from None
            self._switch_off(f"it is {mismatch.TOO_DEEP}")
            return
        if _mentions(self.schema, "nullable"):
            validator_class = _with_nullable(validator_class, jsonschema)
        if self._foreign:
            validator_class = _with_limits(validator_class)
        self._validator = self._without_network(validator_class, _format_checker(jsonschema))

    def _without_network(self, validator_class: Any, format_checker: Any) -> Any:
        """Build the validator so that a reference out of the document fails instead of being fetched."""
        try:
            import referencing.jsonschema  # noqa: F401 - present exactly where jsonschema 4.18 or later is
            from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            self._one_at_a_time = True
            resolver = _local_resolver(self.schema)
            return validator_class(self.schema, resolver=resolver, format_checker=format_checker)
        # The default registry fetches what it does not know; this one holds the meta-schemas and no way out.
        return validator_class(self.schema, registry=REGISTRY, format_checker=format_checker)

    def _switch_off(self, reason: str) -> None:
        if self._enabled:
            self._enabled = False
            _log.warning("%s: values are not checked against its schema: %s", self.label, reason)


def _validator_class(schema: Mapping[str, Any], jsonschema: Any) -> Any:
    """Return the validator for a schema's dialect, having checked the schema against its meta-schema."""
    named = schema.get("$schema")
    if isinstance(named, str):
        known = getattr(jsonschema, _DIALECTS.get(named.rstrip("#"), ""), None)
        if known is not None:
            known.check_schema(schema)
            return known
    newest = next(getattr(jsonschema, name) for name in _NEWEST_FIRST if hasattr(jsonschema, name))
    try:
        newest.check_schema(schema)
    except jsonschema.SchemaError:
        try:
            jsonschema.Draft4Validator.check_schema(schema)
        except jsonschema.SchemaError:
            pass
        else:
            return jsonschema.Draft4Validator
        raise
    return newest


def _format_checker(jsonschema: Any) -> Any:
    """Build a checker for our own list of formats, so that it does not depend on what else is installed."""
    checker = jsonschema.FormatChecker(formats=())
    for name, parse in FORMATS.items():

        def check(value: object, parse: Any = parse) -> bool:
            if isinstance(value, str):
                parse(value)
            return True

        checker.checks(name, raises=ValueError)(check)
    return checker


def _with_nullable(validator_class: Any, jsonschema: Any) -> Any:
    """Extend a validator so that every keyword beside `nullable: true` lets null through."""

    def wrap(keyword: Any) -> Any:
        def check(validator: Any, limit: Any, value: Any, schema: Any) -> Iterator[Any]:
            if value is None and schema.get("nullable") is True:
                return
            yield from keyword(validator, limit, value, schema) or ()

        return check

    wrapped = {name: wrap(keyword) for name, keyword in validator_class.VALIDATORS.items()}
    return jsonschema.validators.extend(validator_class, wrapped)


@functools.lru_cache(maxsize=32)
def _with_limits(validator_class: Any) -> Any:
    """Extend a validator so that no schema and no value keeps it busy for long."""
    from jsonschema import validators

    extend: Any = validators.extend
    checks = {name: schema_effort.limited(name, check) for name, check in validator_class.VALIDATORS.items()}
    limited = extend(validator_class, checks)
    evolve = getattr(validator_class, "evolve", None)
    if evolve is not None:  # jsonschema 4

        def evolve_within_limits(self: Any, **changes: Any) -> Any:
            evolved = evolve(self, **changes)
            kind: Any = type(evolved)
            if kind is limited:
                return evolved
            # A part of the schema names a dialect of its own, which is the library's class for it.
            given = {_init_name(item): getattr(evolved, item.name) for item in kind.__attrs_attrs__ if item.init}
            return _with_limits(kind)(**given)

        limited.evolve = evolve_within_limits
    return limited


def _init_name(field: Any) -> str:
    return getattr(field, "alias", None) or str(field.name).lstrip("_")


def _local_resolver(schema: Mapping[str, Any]) -> Any:
    """Build the resolver of jsonschema before 4.18, with its way to the network taken out."""
    from jsonschema import RefResolver  # type: ignore[attr-defined,unused-ignore]
    from jsonschema.exceptions import RefResolutionError

    class LocalResolver(RefResolver):  # type: ignore[misc,valid-type,unused-ignore]
        def resolve_remote(self, uri: str) -> Any:
            raise RefResolutionError(f"{uri} lies outside the schema")

    return LocalResolver.from_schema(schema)


def _sentences(errors: Iterator[Any]) -> List[str]:
    return [_sentence(error) for error in islice(errors, mismatch.MAX_PROBLEMS)]


def _sentence(error: Any) -> str:
    """Turn an error of jsonschema into our words, which do not quote the value."""
    place = mismatch.path_text(error.absolute_path)
    keyword, limit = error.validator, error.validator_value
    if keyword in ("required", "additionalProperties", "dependentRequired", "dependencies"):
        # These messages hold names of properties, not values.
        return mismatch.cut(f"{place}: {error.message}" if place else error.message)
    subject = place or "the value"
    if keyword == "type":
        allowed = limit if isinstance(limit, list) else [limit]
        expected = "of type " + " or ".join(str(name) for name in allowed)
        return mismatch.cut(f"{subject} {mismatch.wrong_type(expected, error.instance)}")
    if keyword == "enum":
        return mismatch.cut(f"{subject} {mismatch.one_of(limit)}")
    if keyword in ("anyOf", "oneOf"):
        return mismatch.cut(f"{subject} fits none of the allowed forms{_closest(error)}")
    if keyword == "minimum" and error.schema.get("exclusiveMinimum") is True:
        keyword = "exclusiveMinimum"
    elif keyword == "maximum" and error.schema.get("exclusiveMaximum") is True:
        keyword = "exclusiveMaximum"
    return mismatch.cut(f"{subject} {mismatch.constraint(str(keyword), limit)}")


def _closest(error: Any) -> str:
    """Add why the most promising form was refused: the one whose error lies deepest."""
    if not error.context:
        return " exactly once" if error.validator == "oneOf" else ""
    deepest = max(error.context, key=lambda inner: len(inner.absolute_path))
    return f" ({_sentence(deepest)})"


def _where(path: Any) -> str:
    place = mismatch.path_text(path)
    return f"at {place}: " if place else ""


def _mentions(schema: Mapping[str, Any], word: str) -> bool:
    return f'"{word}"' in json.dumps(schema)


def _plain_mapping(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _reason(exc: BaseException) -> str:
    text = str(exc) or type(exc).__name__
    return mismatch.cut(text)
