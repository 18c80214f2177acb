"""What a run is told: from options, files and standard input to the fields of a `RunSpec`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, Mapping, Optional, Sequence

from ..checks import closest
from .loading import Unusable, load
from .parsing import key_value

__all__ = [
    "DEFAULT_SYSTEM_PROMPT",
    "add_spec_options",
    "fields_of",
    "json_file",
    "needs_system_prompt",
    "output_type_of",
    "prompt_of",
    "refuse_beside_session",
]

DEFAULT_SYSTEM_PROMPT = "You are a helpful assistant."


def add_spec_options(parser: argparse.ArgumentParser, *, with_turn: bool = True) -> None:
    """Add the options that say what a run is told.

    Args:
        with_turn: Those that are about one message as well.
    """
    group = parser.add_argument_group("agent")
    group.add_argument(
        "-s", "--system-prompt", metavar="TEXT|@FILE", help=f"what the model is told first ({DEFAULT_SYSTEM_PROMPT!r})"
    )
    group.add_argument("-m", "--model", metavar="ID", help="the model; `mantyx-sync models` lists them")
    group.add_argument("--agent", metavar="ID", help="an agent of the workspace")
    group.add_argument("--reasoning", metavar="LEVEL", help="off, low, medium, high, or 0 to 100")
    group.add_argument(
        "--metadata",
        action="append",
        type=key_value,
        default=[],
        metavar="KEY=VALUE",
        help="to find the run by; may be repeated",
    )
    plan = group.add_mutually_exclusive_group()
    plan.add_argument("--plan", action="store_const", const=True, help="have a task plan made where one is of use")
    plan.add_argument("--plan-required", dest="plan", action="store_const", const="required", help="… in any case")
    plan.add_argument("--no-plan", dest="plan", action="store_const", const="off", help="have none made")
    if with_turn:
        group.add_argument("--plan-step", action="append", metavar="TITLE", help="a step of a plan of your own")
        group.add_argument("--plan-only", action="store_true", help="end once the plan stands")
        group.add_argument(
            "--output-schema",
            metavar="FILE|MODULE:TYPE",
            help="the answer is to be JSON of this schema (a JSON file), or of this type",
        )
        group.add_argument(
            "--file", action="append", default=[], metavar="PATH|URL", help="attach a file; may be repeated"
        )
    group.add_argument("--spec", metavar="FILE", help="a JSON file with any fields of a run; other options go before")
    group.add_argument(
        "--set",
        action="append",
        type=key_value,
        default=[],
        metavar="FIELD=JSON",
        help="any other field of a run: tool_budgets, supervisor, loop_detection, budgets, ...; may be repeated",
    )


def fields_of(options: argparse.Namespace, tools: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of `RunSpec` that the options give, the prompt excepted.

    Raises:
        Unusable: A file cannot be read, or a field is given in a way that cannot be.
        MantyxConfigError: An attachment is not allowed.
    """
    for option in ("system_prompt", "model", "agent"):
        if getattr(options, option) == "":  # a variable of the shell's that is not set, mostly
            raise Unusable(f"--{option.replace('_', '-')} is empty")
    found = _spec_file(options.spec)
    for name, text in options.set:
        found[_field(name, "--set")] = _json_or_text(text, name)
    if tools and not isinstance(found.get("tools", []), list):
        raise Unusable(f"tools: got {type(found['tools']).__name__}, must be a list of tools")
    given = {
        "system_prompt": _text_of(options.system_prompt),
        "model_id": options.model,
        "agent_id": options.agent,
        "reasoning_level": _level(options.reasoning),
        "metadata": dict(options.metadata) or None,
        "plan": _plan(options),
        "tools": [*found.get("tools", ()), *tools] if tools else None,
        "attachments": [_attachment(place) for place in getattr(options, "file", ())] or None,
    }
    found.update({name: value for name, value in given.items() if value is not None})
    return found


def output_type_of(options: argparse.Namespace) -> Any:
    """Return what `--output-schema` names: a JSON Schema or a type; `None` without it.

    Raises:
        Unusable: There is no such file or type, or the file holds no schema.
    """
    place = options.output_schema
    if place is None:
        return None
    if not os.path.exists(place) and ":" in place and not place.endswith(".json"):
        return load(place, "")
    schema = json_file(place, "--output-schema")
    if not isinstance(schema, dict):
        raise Unusable(f"--output-schema: {place!r} holds no JSON Schema, which is an object")
    if isinstance(schema.get("schema"), dict) and not {"type", "properties", "$schema"} & schema.keys():
        return schema["schema"]
    return schema


def prompt_of(words: Sequence[str]) -> Optional[str]:
    """Return the prompt: the arguments, with `-` standing for what comes on standard input; `None` if there is none.

    Without arguments, what is piped in is the prompt.

    Raises:
        Unusable: Standard input is empty, or no text.
    """
    if not words:
        if sys.stdin is None or sys.stdin.isatty():
            return None
        return _standard_input() or None
    if list(words).count("-") > 1:
        raise Unusable("-: standard input can be read only once")
    if "-" in words and (sys.stdin is None or sys.stdin.isatty()):
        raise Unusable("-: nothing is piped in; give the prompt as an argument")
    parts = [_standard_input() if word == "-" else word for word in words]
    if not all(parts):
        raise Unusable("-: nothing came on standard input" if "-" in words else "the prompt is empty, must have text")
    text = "\n\n".join(parts)
    if not text.strip():
        raise Unusable("the prompt is empty, must have text")
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes that the locale does not know
        raise Unusable("the prompt is no text in the encoding of this terminal") from None
    return text


def _standard_input() -> str:
    try:
        source = getattr(sys.stdin, "buffer", None)
        text = sys.stdin.read() if source is None else source.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unusable("-: what is piped in is no UTF-8 text; give files with --file") from None
    return str(text).rstrip("\n") if text.strip() else ""


def _text_of(text: Optional[str]) -> Optional[str]:
    if text is None or not text.startswith("@"):
        return text
    return _read(text[1:], "--system-prompt").strip()


def _level(text: Optional[str]) -> Any:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def _plan(options: argparse.Namespace) -> Any:
    steps, is_only = getattr(options, "plan_step", None), getattr(options, "plan_only", False)
    if not steps and not is_only:
        return options.plan
    if options.plan == "off":
        raise Unusable("--no-plan has no place beside --plan-step and --plan-only")
    wanted: Dict[str, Any] = {}
    if isinstance(options.plan, str):
        wanted["mode"] = options.plan
    if steps:
        if not all(step.strip() for step in steps):
            raise Unusable("--plan-step is empty, must be the title of a step")
        wanted["steps"] = steps
    if is_only:
        wanted["plan_only"] = True
    return wanted


def _attachment(place: str) -> Any:
    from ..messages import input_file, input_file_url

    if place.lower().startswith("https://"):
        return input_file_url(place)
    try:
        return input_file(place)
    except OSError as error:
        raise Unusable(f"--file: {place!r} cannot be read: {error.strerror}") from None


def _spec_file(path: Optional[str]) -> Dict[str, Any]:
    if path is None:
        return {}
    value = json_file(path, "--spec")
    if not isinstance(value, dict):
        raise Unusable(f"--spec: {path!r} must hold a JSON object with fields of a run")
    found: Dict[str, Any] = {}
    for key, item in value.items():
        name = _field(key, f"--spec {path}")
        if name in found:
            raise Unusable(f"--spec {path}: {key!r} is given twice, in both spellings")
        found[name] = item
    return found


def _field(name: str, where: str) -> str:
    """Return a field's Python name; it may be given as on the wire."""
    from dataclasses import fields

    from ..spec import RunSpec
    from ..wire import python_name

    known = [field.name for field in fields(RunSpec)]
    found = python_name(name.replace("-", "_"))
    if found not in known:
        near = closest(found, known)
        hint = f"; did you mean {near!r}?" if near else f" (there are: {', '.join(known)})"
        raise Unusable(f"{where}: a run has no field {name!r}{hint}")
    return found


def _json_or_text(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise Unusable(f"--set {name}: the value is nested too deeply") from None
    except ValueError as error:
        if text[:1] in ("{", "[", '"'):
            raise Unusable(f"--set {name}: the value is not JSON: {error}") from None
        return text


def json_file(path: str, where: str) -> Any:
    """Return what a file of JSON holds.

    Args:
        where: The option that names the file, for the sentence.

    Raises:
        Unusable: It cannot be read, or is not JSON.
    """
    try:
        return json.loads(_read(path, where))
    except RecursionError:
        raise Unusable(f"{where}: {path!r} is nested too deeply") from None
    except ValueError as error:
        raise Unusable(f"{where}: {path!r} is not JSON: {error}") from None


def _read(path: str, where: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except UnicodeDecodeError:
        raise Unusable(f"{where}: {path!r} is no UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise Unusable(f"{where}: {path!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def refuse_beside_session(fields: Mapping[str, Any]) -> None:
    """Refuse what a session has of its own, wherever it was given.

    Raises:
        Unusable: It is among the fields.
    """
    if "system_prompt" in fields or "agent_id" in fields:
        raise Unusable("--system-prompt and --agent have no place beside --session: the session has its own")


def needs_system_prompt(fields: Mapping[str, Any]) -> bool:
    """Tell whether nobody is named yet who could run."""
    if fields.get("agent_id") or fields.get("system_prompt"):
        return False
    messages = fields.get("messages")
    if not isinstance(messages, (list, tuple)):
        return True
    return not any(isinstance(message, dict) and message.get("role") == "system" for message in messages)
