"""OAuth of the embedded server, seen from a socket: grants, expiry, revocation, scopes."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from typing import Any, Iterator, Mapping, Optional
from urllib.parse import urlencode

import pytest

from mantyx_sync.local import LocalServer, OAuthApp, ScriptedModel
from mantyx_sync.local.faults import answer
from tests.plain_http import DEADLINE_S, Answer, request, run_to_end

ID, SECRET, REFRESH = "mantyx_oa_desk", "mantyx_oas_desk", "mantyx_rt_ada"
APP = OAuthApp(
    ID,
    SECRET,
    scopes=["models:read", "runs:read", "runs:write", "mantyx.identity:read"],
    refresh_tokens=[REFRESH],
    allows_client_credentials=True,
    user={"sub": "usr_ada", "email": "ada@example.com"},
)
OTHER = OAuthApp("mantyx_oa_other", "mantyx_oas_other", refresh_tokens={"mantyx_rt_bob": ["models:read"]})


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[LocalServer]:
    with LocalServer(ScriptedModel(["Done."]), oauth_apps=[APP, OTHER], clock=clock) as running:
        yield running


def outside(server: LocalServer, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
    """Make one request that is not below the workspace's prefix."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def form(server: LocalServer, path: str, fields: Mapping[str, Any], **headers: str) -> Answer:
    sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    return outside(server, "POST", f"/api/oauth/{path}", urlencode(fields, doseq=True).encode(), sent)


def token_request(grant: str = "refresh_token", **fields: Any) -> dict[str, Any]:
    given = {"grant_type": grant, "client_id": ID, "client_secret": SECRET}
    if grant == "refresh_token":
        given["refresh_token"] = REFRESH
    return {name: value for name, value in {**given, **fields}.items() if value is not None}


def mint(server: LocalServer, grant: str = "refresh_token", **fields: Any) -> str:
    minted = form(server, "token", token_request(grant, **fields))
    assert minted.status == 200, minted
    return str(minted.json["access_token"])


def userinfo(server: LocalServer, token: Optional[str]) -> Answer:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return outside(server, "GET", "/api/oauth/userinfo", None, headers)


def status_with(server: LocalServer, token: str) -> int:
    return request(server, "GET", "/models", token=token).status


def test_a_refresh_token_gets_a_new_access_token_each_time_and_stays_itself(server: LocalServer) -> None:
    first, second = (form(server, "token", token_request()) for _ in range(2))
    for minted in (first, second):
        assert minted.status == 200
        assert minted.headers["cache-control"] == "no-store"
        assert minted.json["access_token"].startswith("mantyx_at_")
        assert {k: v for k, v in minted.json.items() if k != "access_token"} == {
            "refresh_token": REFRESH,
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": "models:read runs:read runs:write mantyx.identity:read",
        }
        assert status_with(server, minted.json["access_token"]) == 200
    assert first.json["access_token"] != second.json["access_token"]


def test_client_credentials_get_a_token_without_a_refresh_token(server: LocalServer) -> None:
    minted = form(server, "token", token_request("client_credentials", scope="models:read"))
    assert (minted.status, minted.json["scope"]) == (200, "models:read")
    assert "refresh_token" not in minted.json
    assert status_with(server, minted.json["access_token"]) == 200


def test_client_credentials_may_come_in_the_authorization_header(server: LocalServer) -> None:
    fields = token_request(client_id=None, client_secret=None)
    for secret, status in ((SECRET, 200), ("wrong", 401)):
        basic = base64.b64encode(f"{ID}:{secret}".encode()).decode()
        given = form(server, "token", fields, Authorization=f"Basic {basic}")
        assert given.status == status
        assert given.headers.get("www-authenticate") == ("Basic" if status == 401 else None)


def test_a_scope_narrows_a_token(server: LocalServer) -> None:
    token = mint(server, scope="runs:read models:read")
    assert status_with(server, token) == 200
    refused = request(server, "POST", "/agent-runs", {"systemPrompt": "x", "prompt": "y"}, token=token)
    assert (refused.status, refused.json["error"], refused.json["required"]) == (
        403,
        "insufficient_scope",
        "runs:write",
    )
    assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="runs:write"'


def test_a_refresh_token_may_have_scopes_of_its_own(server: LocalServer) -> None:
    app = {"client_id": OTHER.client_id, "client_secret": OTHER.client_secret, "refresh_token": "mantyx_rt_bob"}
    assert form(server, "token", token_request(**app)).json["scope"] == "models:read"
    assert form(server, "token", token_request(**app, scope="runs:read")).json["error"] == "invalid_scope"


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "mantyx_oa_none"}, 401, "invalid_client"),
        ({"client_id": None, "client_secret": None}, 401, "invalid_client"),
        ({"refresh_token": "mantyx_rt_none"}, 400, "invalid_grant"),
        ({"refresh_token": "mantyx_rt_bob"}, 400, "invalid_grant"),
        ({"refresh_token": None}, 400, "invalid_request"),
        ({"grant": "password"}, 400, "unsupported_grant_type"),
        ({"grant_type": None}, 400, "invalid_request"),
        ({"scope": "runs:read sessions:write"}, 400, "invalid_scope"),
        ({"refresh_token": [REFRESH, REFRESH]}, 400, "invalid_request"),
        (
            {"grant": "client_credentials", "client_id": OTHER.client_id, "client_secret": OTHER.client_secret},
            400,
            "unauthorized_client",
        ),
    ],
)
def test_a_token_request_is_refused_in_the_words_of_rfc_6749(
    server: LocalServer, fields: dict[str, Any], status: int, error: str
) -> None:
    given = dict(fields)
    refused = form(server, "token", token_request(given.pop("grant", "refresh_token"), **given))
    assert (refused.status, refused.json["error"]) == (status, error)
    assert refused.json["error_description"]
    assert SECRET not in refused.body.decode()
    assert refused.headers["cache-control"] == "no-store"


def test_a_token_request_must_be_a_form(server: LocalServer) -> None:
    body = json.dumps(token_request()).encode()
    refused = outside(server, "POST", "/api/oauth/token", body, {"Content-Type": "application/json"})
    assert (refused.status, refused.json["error"]) == (400, "invalid_request")
    odd = {"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"}
    assert outside(server, "POST", "/api/oauth/token", urlencode(token_request()).encode(), odd).status == 200


# ------------------------------------------------------------------------------- the end of a token


def test_an_access_token_expires_after_an_hour(server: LocalServer, clock: Clock) -> None:
    token = mint(server)
    clock.now += 3599
    assert status_with(server, token) == 200
    clock.now += 1
    expired = request(server, "GET", "/models", token=token)
    assert (expired.status, expired.json["error"]) == (401, "unauthorized")
    assert expired.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert status_with(server, mint(server)) == 200


def test_tokens_expire_on_demand_and_new_ones_work() -> None:
    with LocalServer(oauth_apps=[APP], tokens={"mantyx_at_fixed": ["models:read"]}) as server:
        token = mint(server)
        assert server.expire_tokens() == 2
        assert (status_with(server, token), status_with(server, "mantyx_at_fixed")) == (401, 401)
        assert status_with(server, "mantyx_local") == 200  # an API key is no access token
        assert status_with(server, mint(server)) == 200
        assert server.expire_tokens() == 1


def test_revoking_a_refresh_token_ends_its_access_tokens_too(server: LocalServer) -> None:
    tokens = [mint(server), mint(server)]
    unattended = mint(server, "client_credentials")
    credentials = {"client_id": ID, "client_secret": SECRET}
    assert form(server, "revoke", {"token": REFRESH, **credentials}).status == 200
    assert [status_with(server, token) for token in tokens] == [401, 401]
    assert status_with(server, unattended) == 200
    refused = form(server, "token", token_request())
    assert (refused.status, refused.json["error"]) == (400, "invalid_grant")
    assert form(server, "revoke", {"token": REFRESH, **credentials}).status == 200


def test_revoking_an_access_token_ends_it_alone(server: LocalServer) -> None:
    first, second = mint(server), mint(server)
    assert form(server, "revoke", {"token": first, "client_id": ID, "client_secret": SECRET}).status == 200
    assert (status_with(server, first), status_with(server, second)) == (401, 200)
    assert form(server, "token", token_request()).status == 200


def test_an_app_revokes_nothing_of_another_and_is_not_told(server: LocalServer) -> None:
    token = mint(server)
    stranger = {"client_id": OTHER.client_id, "client_secret": OTHER.client_secret}
    for given in (token, REFRESH, "mantyx_at_unknown"):
        assert form(server, "revoke", {"token": given, **stranger}).status == 200
    assert status_with(server, token) == 200
    assert form(server, "token", token_request()).status == 200


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [({"client_secret": "x"}, 401, "invalid_client"), ({"token": ""}, 400, "invalid_request")],
)
def test_revoking_needs_the_apps_own_credentials(
    server: LocalServer, fields: dict[str, str], status: int, error: str
) -> None:
    given = {"token": REFRESH, "client_id": ID, "client_secret": SECRET, **fields}
    refused = form(server, "revoke", given)
    assert (refused.status, refused.json["error"]) == (status, error)


# ------------------------------------------------------------------------------------ who and where


def test_userinfo_says_who_granted_and_which_workspace(server: LocalServer) -> None:
    assert userinfo(server, mint(server)).json == {
        "sub": "usr_ada",
        "email": "ada@example.com",
        "workspace": {"id": "ws_local", "slug": "local", "name": "local"},
    }


def test_userinfo_needs_a_token_with_the_scope(server: LocalServer) -> None:
    assert userinfo(server, None).status == 401
    assert userinfo(server, "mantyx_at_none").status == 401
    refused = userinfo(server, mint(server, scope="models:read"))
    assert (refused.status, refused.json["required"]) == (403, "mantyx.identity:read")
    assert (userinfo(server, "mantyx_local").status, userinfo(server, "mantyx_local").json["error"]) == (
        403,
        "forbidden",
    )


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/oauth/token", 405), ("POST", "/api/oauth/userinfo", 405), ("GET", "/api/oauth/none", 404)],
)
def test_other_paths_and_methods_are_told_apart(server: LocalServer, method: str, path: str, status: int) -> None:
    headers = {"Authorization": "Bearer mantyx_local"}
    assert outside(server, method, path, None, headers).status == status


def test_a_run_works_with_an_access_token_and_counts_for_it() -> None:
    with LocalServer(ScriptedModel(["Done."]), oauth_apps=[APP], rate_limits={"run_starts": 1}) as server:
        spec = {"systemPrompt": "x", "prompt": "y"}
        first, second = mint(server), mint(server)
        assert request(server, "POST", "/agent-runs", spec, token=first).status == 202
        assert request(server, "POST", "/agent-runs", spec, token=first).status == 429
        assert request(server, "POST", "/agent-runs", spec, token=second).status == 202
        assert run_to_end(server)[-1]["type"] == "result"


@pytest.mark.parametrize(("route", "path"), [("oauth_token", "token"), ("oauth_revoke", "revoke")])
def test_faults_strike_the_routes_of_oauth(server: LocalServer, route: str, path: str) -> None:
    fields = {**token_request(), "token": "mantyx_at_unknown"}
    fault = server.faults.add(answer(503, "<html>busy</html>"), route=route)
    assert form(server, path, fields).status == 503
    assert form(server, path, fields).status == 200
    assert fault.hits == 1
    assert [entry.route for entry in server.requests] == [route, route]


def test_the_secrets_of_an_app_are_not_in_its_repr() -> None:
    assert SECRET not in repr(APP)
    assert REFRESH not in repr(APP)
