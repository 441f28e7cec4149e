"""Keys, tokens and who may do what, over real sockets and a real database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from services.gateway.adapters import jwks
from tests.support.fake_backends import Suite, gateway_suite
from tests.support.run_events import started
from tests.support.sse_reader import events

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite(key_check=timedelta(milliseconds=50)) as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


async def issue(suite: Suite, **body: Any) -> dict[str, Any]:
    response = await suite.http.post("/v1/keys", json={"name": "ci", **body})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_key_is_shown_once_and_kept_as_a_hash(suite: Suite) -> None:
    made = await issue(suite, user="ann")
    assert made["key"].startswith(made["prefix"] + "-")
    listing = (await suite.http.get("/v1/keys")).json()
    assert "key" not in listing["keys"][0]
    assert listing["keys"][0]["prefix"] == made["prefix"]
    secret = made["key"].removeprefix(made["prefix"] + "-")
    folder = Path(suite.gateway.parts.settings.data_dir)
    stored = b"".join(path.read_bytes() for path in folder.glob("gateway.sqlite3*"))
    assert secret.encode() not in stored
    with sqlite3.connect(folder / "gateway.sqlite3") as database:
        hashes = [row[0] for row in database.execute("SELECT secret_hash FROM api_keys")]
    assert all(value.startswith("$argon2id$") for value in hashes)


async def test_a_key_acts_for_its_user_and_tenant(suite: Suite) -> None:
    made = await issue(suite, user="ann", tenant="acme", scopes=["runs"], groups=["finance"])
    response = await suite.http.post("/v1/runs", json={"input": "x"}, headers=bearer(made["key"]))
    assert response.headers["proctor-identity"] == "key"
    principal = suite.orchestrator.principals[-1]
    assert (principal.tenant, principal.user, principal.key_id) == ("acme", "ann", made["key_id"])
    assert (principal.scopes, principal.groups) == (frozenset({"runs"}), frozenset({"finance"}))


async def test_the_x_api_key_header_does_too(suite: Suite) -> None:
    made = await issue(suite, tenant="acme")
    response = await suite.http.get("/v1/runs", headers={"X-Api-Key": made["key"]})
    assert response.headers["proctor-identity"] == "key"


async def test_a_key_does_only_what_its_scopes_say(suite: Suite) -> None:
    headers = bearer((await issue(suite, scopes=["sources:read"]))["key"])
    assert (await suite.http.get("/v1/sources", headers=headers)).status_code == 200
    for method, path in [("GET", "/v1/runs"), ("POST", "/v1/sources"), ("GET", "/v1/keys"), ("GET", "/v1/approvals")]:
        response = await suite.http.request(
            method, path, headers=headers, json={"name": "x"} if method == "POST" else None
        )
        assert (response.status_code, response.json()["reason"]) == (403, "PERMISSION_DENIED")


async def test_wrong_forged_and_foreign_credentials_are_refused(suite: Suite) -> None:
    made = await issue(suite)
    for wrong in (made["key"][:-1] + "~", f"{made['prefix']}-", "pk-0000000000000000-x", made["key"] + "x"):
        response = await suite.http.get("/v1/runs", headers=bearer(wrong))
        if wrong == f"{made['prefix']}-":
            continue  # not a key of ours; a local caller may send any word
        assert (response.status_code, response.json()["reason"]) == (401, "UNAUTHENTICATED")


async def test_from_elsewhere_any_word_is_no_key(suite: Suite) -> None:
    response = await suite.http.get("/v1/runs", headers={**bearer("sk-anything"), "X-Forwarded-For": "203.0.113.1"})
    assert response.status_code == 401


async def test_a_revoked_key_stops_within_seconds_and_ends_open_streams(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    made = await issue(suite)
    headers = bearer(made["key"])
    async with suite.http.stream("POST", "/v1/runs", json={"input": "slow"}, headers=headers) as response:
        stream = events(response)
        assert (await anext(stream)).event == "run_started"
        assert (await suite.http.delete(f"/v1/keys/{made['key_id']}")).status_code == 204
        async with asyncio.timeout(5):
            assert [event async for event in stream] == []
    after = await suite.http.get("/v1/runs", headers=headers)
    assert (after.status_code, after.json()["reason"]) == (401, "KEY_REVOKED")


async def test_a_chat_stream_of_a_revoked_key_still_ends_in_done(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    made = await issue(suite)
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    async with suite.http.stream("POST", "/v1/chat/completions", json=body, headers=bearer(made["key"])) as response:
        stream = events(response)
        await anext(stream)
        await suite.http.delete(f"/v1/keys/{made['key_id']}")
        async with asyncio.timeout(5):
            rest = [event.data async for event in stream]
    assert rest[-1] == "[DONE]"


async def test_an_expired_key_is_over(suite: Suite) -> None:
    made = await issue(suite, lifetime=0.05)
    async with asyncio.timeout(5):
        while (response := await suite.http.get("/v1/runs", headers=bearer(made["key"]))).status_code == 200:
            await asyncio.sleep(0.02)
    assert response.json()["reason"] == "KEY_REVOKED"


async def test_rotation_makes_a_like_key_and_lets_the_old_one_run_out(suite: Suite) -> None:
    old = await issue(suite, scopes=["runs"], user="ann")
    new = (await suite.http.post(f"/v1/keys/{old['key_id']}/rotate", json={"grace": 0})).json()
    assert (new["replaces"], new["scopes"], new["user"]) == (old["key_id"], ["runs"], "ann")
    assert (await suite.http.get("/v1/runs", headers=bearer(new["key"]))).status_code == 200
    async with asyncio.timeout(5):
        while (await suite.http.get("/v1/runs", headers=bearer(old["key"]))).status_code == 200:
            await asyncio.sleep(0.02)


async def test_nobody_grants_scopes_they_lack_or_keys_of_other_tenants(suite: Suite) -> None:
    keeper = bearer((await issue(suite, tenant="acme", scopes=["keys", "runs"]))["key"])
    beyond = await suite.http.post("/v1/keys", json={"name": "x", "scopes": ["approvals:decide"]}, headers=keeper)
    foreign = await suite.http.post("/v1/keys", json={"name": "x", "tenant": "rival"}, headers=keeper)
    assert (beyond.status_code, foreign.status_code) == (403, 403)
    other = await issue(suite, tenant="rival")
    for method, path in [("DELETE", f"/v1/keys/{other['key_id']}"), ("POST", f"/v1/keys/{other['key_id']}/rotate")]:
        response = await suite.http.request(method, path, headers=keeper, json={} if method == "POST" else None)
        assert (response.status_code, response.json()["reason"]) == (404, "KEY_NOT_FOUND")
    mine = await suite.http.get("/v1/keys", headers=keeper)
    assert {key["tenant"] for key in mine.json()["keys"]} == {"acme"}


async def test_a_published_key_serves_its_agent_only(suite: Suite) -> None:
    headers = bearer((await issue(suite, agent="handbook"))["key"])
    await suite.http.post("/v1/runs", json={"input": "x"}, headers=headers)
    assert suite.orchestrator.runs["run1"].request.agent_id == "handbook"
    for body in ({"agent_id": "other"}, {"inline_agent": {"name": "mine"}}, {"sources": ["secret"]}):
        response = await suite.http.post("/v1/runs", json={"input": "x", **body}, headers=headers)
        assert response.status_code == 403


async def test_keys_are_listed_page_by_page(suite: Suite) -> None:
    made = [(await issue(suite, tenant="paged"))["key_id"] for _ in range(5)]
    seen: list[str] = []
    token = ""
    while True:
        query = {"tenant": "paged", "page_size": "2", "page_token": token}
        page = (await suite.http.get("/v1/keys", params=query)).json()
        seen += [key["key_id"] for key in page["keys"]]
        token = page["next_page_token"]
        if not token:
            break
    assert seen == made[::-1]
    assert (await suite.http.get("/v1/keys?page_token=garbage")).json()["reason"] == "PAGE_TOKEN_INVALID"


async def test_one_tenants_runs_do_not_exist_for_another(suite: Suite) -> None:
    ours = bearer((await issue(suite, tenant="acme"))["key"])
    theirs = bearer((await issue(suite, tenant="rival"))["key"])
    run = await suite.http.post("/v1/runs", json={"input": "x"}, headers={**ours, "Accept": "application/json"})
    run_id = run.json()["run_id"]
    for method, path in [
        ("GET", f"/v1/runs/{run_id}"),
        ("GET", f"/v1/runs/{run_id}/events"),
        ("POST", f"/v1/runs/{run_id}/cancel"),
        ("POST", f"/v1/runs/{run_id}/resume"),
    ]:
        response = await suite.http.request(method, path, headers=theirs, json={} if "resume" in path else None)
        assert (response.status_code, response.json()["reason"]) == (404, "RUN_NOT_FOUND")
    assert (await suite.http.get("/v1/runs", headers=theirs)).json()["runs"] == []
    pause = {"role": "tool", "tool_call_id": f"pause.approval.{run_id}.c", "content": "approve"}
    chat = await suite.http.post("/v1/chat/completions", json={"messages": [pause]}, headers=theirs)
    assert chat.status_code == 404


async def test_guessing_is_slowed() -> None:
    async with gateway_suite(local_without_key=False) as suite:
        answers = [await suite.http.get("/v1/runs", headers=bearer("pk-guess")) for _ in range(32)]
    assert {answer.status_code for answer in answers[:30]} == {401}
    assert answers[-1].status_code == 429


class Issuer:
    """An identity provider: one key, published by JWKS."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.fetches = 0

    def client(self) -> httpx.AsyncClient:
        def publish(request: httpx.Request) -> httpx.Response:
            self.fetches += 1
            public = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
            return httpx.Response(200, json={"keys": [{**public, "kid": "k1", "alg": "RS256", "use": "sig"}]})

        return httpx.AsyncClient(transport=httpx.MockTransport(publish))

    def token(self, **claims: Any) -> str:
        body = {
            "iss": "https://issuer.example",
            "aud": "proctor",
            "sub": "ann",
            "tenant": "acme",
            "scope": "runs sources:read",
            "groups": ["finance"],
            "exp": datetime.now(UTC) + timedelta(minutes=5),
            **claims,
        }
        return jwt.encode(
            {key: value for key, value in body.items() if value is not None}, self.key, "RS256", {"kid": "k1"}
        )


@pytest.fixture
def issuer(shared: Suite) -> Issuer:
    return Issuer()


def _with_issuer(suite: Suite, issuer: Issuer) -> None:
    rules = jwks.JwtRules(
        issuer="https://issuer.example",
        audience="proctor",
        algorithm="RS256",
        tenant_claim="tenant",
        scopes_claim="scope",
        groups_claim="groups",
    )
    clock = suite.platform.clock
    verifier = jwks.JwksVerifier(rules, "https://issuer.example/keys", suite.gateway.lapses, clock, issuer.client)
    authenticator = suite.gateway.parts.authenticator
    authenticator._verifiers = (authenticator._verifiers[0], verifier)


async def test_a_token_of_the_issuer_is_its_subject(suite: Suite, issuer: Issuer) -> None:
    _with_issuer(suite, issuer)
    for _ in range(3):
        response = await suite.http.post("/v1/runs", json={"input": "x"}, headers=bearer(issuer.token()))
        assert response.headers["proctor-identity"] == "jwt"
    principal = suite.orchestrator.principals[-1]
    assert (principal.tenant, principal.user, principal.groups) == ("acme", "ann", frozenset({"finance"}))
    assert issuer.fetches == 1


async def test_tokens_that_are_not_right_are_refused(suite: Suite, issuer: Issuer) -> None:
    _with_issuer(suite, issuer)
    other = Issuer()
    symmetric = jwt.encode({"iss": "https://issuer.example"}, "k" * 32, "HS256", {"kid": "k1"})
    wrong = [
        issuer.token(exp=datetime.now(UTC) - timedelta(minutes=2)),
        issuer.token(aud="other"),
        issuer.token(iss="https://evil.example"),
        issuer.token(tenant=None),
        issuer.token(tenant=""),
        issuer.token(sub=None),
        other.token(),
        symmetric,
        jwt.encode({"sub": "ann"}, "", "none", {"kid": "k1"}),
        issuer.token()[:-4] + "AAAA",
        "ey.ey.ey",
    ]
    for token in wrong:
        response = await suite.http.get("/v1/runs", headers=bearer(token))
        assert (response.status_code, response.json()["reason"]) == (401, "UNAUTHENTICATED")
