"""The card of an agent that we serve: one document that callers of A2A 1.0 and of 0.3 can read (a2a §1.3). No I/O."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Dict, List, Mapping, Sequence

from ...checks import json_copy, refusal, sequence, shown, text

__all__ = ["card_bytes", "card_etag", "read_skills", "write_card"]

# From the form of 0.3, which is OpenAPI's, to the name of the member that 1.0 wraps it in.
_SCHEME_MEMBERS = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
_SKILL_TEXTS = ("id", "name", "description")
_SKILL_LISTS = ("tags", "examples", "inputModes", "outputModes")


def read_skills(skills: object, name: str, description: str) -> List[Dict[str, Any]]:
    """Check the skills of a card; without any, the agent as a whole is the one it has.

    Raises:
        MantyxConfigError: A skill lacks what it must have.
    """
    if skills is None:
        return [{"id": _slug(name), "name": name, "description": description, "tags": ["agent"]}]
    found = []
    for i, skill in enumerate(sequence(skills, "skills", "skills")):
        where = f"skills[{i}]"
        if not isinstance(skill, Mapping):
            raise refusal(where, shown(skill), "be a mapping with id, name, description and tags")
        wire: Dict[str, Any] = json_copy(skill, where)
        for key in _SKILL_TEXTS:
            text(wire.get(key), f"{where}.{key}")
        wire.setdefault("tags", [])
        for key in _SKILL_LISTS:
            for item in sequence(wire.get(key, []), f"{where}.{key}", "strings"):
                text(item, f"{where}.{key}")
        found.append(wire)
    if not found:
        raise refusal("skills", "an empty list", "have at least one skill (or be left out)")
    ids = [skill["id"] for skill in found]
    for skill_id in ids:
        if ids.count(skill_id) > 1:
            raise refusal("skills", f"two skills with the id {shown(skill_id)}", "have ids that differ")
    return found


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "agent"


def write_card(
    *,
    url: str,
    name: str,
    description: str,
    version: str,
    streaming: bool,
    skills: Sequence[Mapping[str, Any]],
    input_modes: Sequence[str],
    output_modes: Sequence[str],
    security_schemes: Mapping[str, Any] | None = None,
    security: Sequence[Mapping[str, Sequence[str]]] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Dict[str, Any]:
    """Write the card.

    Args:
        url: Where requests go.
        security_schemes: In the form of 0.3: mappings with `type`.
        security: In the form of 0.3: which schemes, with which scopes; any one of these is enough.
        more: Members that are written as they are, below ours.
    """
    schemes = {key: _merged_scheme(scheme) for key, scheme in (security_schemes or {}).items()}
    secured: Dict[str, Any] = {}
    if schemes:
        secured["securitySchemes"] = schemes
    if security:
        secured["security"] = [{key: list(scopes) for key, scopes in entry.items()} for entry in security]
        secured["securityRequirements"] = [
            {"schemes": {key: {"list": list(scopes)} for key, scopes in entry.items()}} for entry in security
        ]
    return {
        **(more or {}),
        "name": name,
        "description": description,
        "version": version,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3",
        "capabilities": {"streaming": streaming, "pushNotifications": False},
        "defaultInputModes": list(input_modes),
        "defaultOutputModes": list(output_modes),
        "skills": [dict(skill) for skill in skills],
        **secured,
    }


def _merged_scheme(scheme: Mapping[str, Any]) -> Dict[str, Any]:
    """Write a scheme so that either version finds its own form: 0.3 the flat one, 1.0 the one that is wrapped."""
    member = _SCHEME_MEMBERS.get(str(scheme.get("type")))
    if member is None:
        return dict(scheme)
    inner = {"location" if key == "in" else key: value for key, value in scheme.items() if key != "type"}
    return {**scheme, member: inner}


def card_bytes(card: Mapping[str, Any]) -> bytes:
    """Write a card as the body of an answer."""
    return json.dumps(card, separators=(",", ":")).encode("ascii")


def card_etag(body: bytes) -> str:
    """Return the `ETag` of a card."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'
