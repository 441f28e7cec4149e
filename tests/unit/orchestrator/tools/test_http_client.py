"""The HTTP client of tools: where it connects, what it follows, what it reads."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp import web

from services.orchestrator.models.errors import UrlForbidden
from services.orchestrator.models.own.addresses import UrlGuard
from services.orchestrator.tools.http_client import (
    CheckedHttpClient,
    HttpFailed,
    HttpLimits,
    HttpRequest,
    guard_of,
    shown,
)
from tests.support.http_site import site

LOOPBACK = ("127.0.0.0/8",)


def client(**limits: float) -> CheckedHttpClient:
    return CheckedHttpClient(guard_of(LOOPBACK), HttpLimits(**limits))  # type: ignore[arg-type]


async def test_a_reply_comes_back_with_type_and_text() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="größer", content_type="text/plain", charset="latin-1", headers={"Set-Cookie": "a=b"})

    async with site(answer) as running:
        request = HttpRequest(method="POST", url=f"{running.url}/x?y=1", headers={"X-A": "b"}, body=b"{}")
        reply = await client().send(request)

    assert (reply.status, reply.media_type, reply.text, reply.truncated) == (200, "text/plain", "größer", False)
    assert "set-cookie" not in reply.headers
    method, path, headers, body = running.seen[0]
    assert (method, path, headers["x-a"], body) == ("POST", "/x?y=1", "b", b"{}")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f.1:{port}/",
        "http://017700000001:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[64:ff9b::7f00:1]:{port}/",
        "http://0.0.0.0:{port}/",
        "http://169.254.169.254/latest/meta-data",
        "http://user:word@127.0.0.1:{port}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/",
    ],
)
async def test_no_form_of_a_private_address_is_connected_to(url: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="secret")

    async with site(answer) as running:
        with pytest.raises((UrlForbidden, HttpFailed)):
            await CheckedHttpClient(guard_of()).send(HttpRequest(method="GET", url=url.format(port=running.port)))
    assert running.seen == []


async def test_a_name_that_is_public_at_first_and_private_later_is_refused() -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]

    async def rebinding(host: str, port: int) -> list[str]:
        return answers.pop(0)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="secret")

    async with site(answer) as running:
        sender = CheckedHttpClient(UrlGuard(lookup=rebinding), lookup=rebinding)
        with pytest.raises(UrlForbidden, match="not public"):
            await sender.send(HttpRequest(method="GET", url=f"http://rebind.example:{running.port}/"))
    assert running.seen == []
    assert answers == []


async def test_a_redirect_to_a_private_address_is_refused() -> None:
    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://[::1]:1/admin")

    async with site(answer) as running:
        with pytest.raises(UrlForbidden):
            await client().send(HttpRequest(method="GET", url=running.url))


async def test_credentials_and_bodies_do_not_follow_a_redirect_to_another_origin() -> None:
    async def there(request: web.Request) -> web.Response:
        return web.Response(text="there")

    async with site(there) as other:

        async def here(request: web.Request) -> web.Response:
            raise web.HTTPSeeOther(f"{other.url}/landed" if request.path == "/away" else "/away")

        async with site(here) as running:
            request = HttpRequest(
                method="POST",
                url=f"{running.url}/first",
                headers={"Content-Type": "application/json", "X-Kept": "1"},
                secrets={"Authorization": "Bearer s3cret"},
                body=b'{"a":1}',
            )
            reply = await client().send(request)

    assert (reply.status, reply.text) == (200, "there")
    assert [(m, h.get("authorization"), b) for m, _, h, b in running.seen] == [
        ("POST", "Bearer s3cret", b'{"a":1}'),
        ("GET", "Bearer s3cret", b""),
    ]
    ((method, path, headers, body),) = other.seen
    assert (method, path, body) == ("GET", "/landed", b"")
    assert "authorization" not in headers
    assert headers["x-kept"] == "1"


async def test_a_method_with_an_effect_is_not_sent_elsewhere() -> None:
    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/other")

    async with site(answer) as running:
        reply = await client().send(HttpRequest(method="DELETE", url=running.url))
    assert reply.status == 307
    assert len(running.seen) == 1


async def test_a_ring_of_redirects_ends() -> None:
    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPFound("/again")

    async with site(answer) as running:
        with pytest.raises(HttpFailed, match="more than 5"):
            await client().send(HttpRequest(method="GET", url=running.url))


async def test_a_large_body_is_cut_and_a_bomb_is_inflated_only_so_far() -> None:
    bomb = gzip.compress(b"a" * 20_000_000)

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/bomb":
            return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})
        return web.Response(body=b"b" * 5000)

    async with site(answer) as running:
        for path in ("bomb", "large"):
            reply = await client(max_bytes=1000).send(HttpRequest(method="GET", url=f"{running.url}/{path}"))
            assert len(reply.body) == 1000
            assert reply.truncated


async def test_a_compressed_body_is_read() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"hello"), headers={"Content-Encoding": "gzip"})

    async with site(answer) as running:
        assert (await client().send(HttpRequest(method="GET", url=running.url))).text == "hello"


async def test_a_silent_server_is_given_up_and_the_query_is_not_told() -> None:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with site(answer) as running:
        with pytest.raises(HttpFailed, match="did not answer within") as caught:
            await client(seconds=0.1).send(HttpRequest(method="GET", url=f"{running.url}/p?key=s3cret"))
    assert "s3cret" not in str(caught.value)
    assert "/p" in str(caught.value)


async def test_a_closed_port_is_told_without_the_query() -> None:
    with pytest.raises(HttpFailed) as caught:
        await client().send(HttpRequest(method="GET", url="http://127.0.0.1:1/?key=s3cret"))
    assert "s3cret" not in str(caught.value)


def test_an_url_is_shown_without_what_may_be_secret() -> None:
    assert shown("https://u:p@h.example:8443/a/b?key=1#f") == "'https://h.example:8443/a/b'"
    assert shown("http://[broken") == "the URL"
