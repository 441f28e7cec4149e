"""nginx with the configuration that is shipped, in front of a gateway on this machine."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.certificates import make_authority
from tests.support.suite import free_port

SHIPPED = Path(__file__).parents[2] / "deploy" / "nginx" / "proctor.conf"
# What is around it: a server that compresses whatever it can, as some do.
AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    gzip on;
    gzip_types *;
    gzip_min_length 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/proctor.conf;
}}
"""


@asynccontextmanager
async def nginx_before(url: str, folder: Path) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """Yield an https URL at which nginx serves the gateway of `url`, and how to trust it."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("needs nginx: apt-get install nginx")
    trusted = make_authority("front", folder)
    files = trusted.issue("nginx")
    port = free_port()
    text = SHIPPED.read_text()
    for said, here in (
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("server 127.0.0.1:8080;", f"server {url.removeprefix('http://')};"),
        ("/etc/nginx/proctor.crt", str(files.certificate)),
        ("/etc/nginx/proctor.key", str(files.key)),
    ):
        assert said in text, said
        text = text.replace(said, here)
    (folder / "proctor.conf").write_text(text)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
    process = await asyncio.create_subprocess_exec(program, "-p", str(folder), "-c", str(folder / "nginx.conf"))
    try:
        await _accepts(port, process)
        yield f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=str(files.authority))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    errors = (folder / "error.log").read_text()
    assert "[error]" not in errors, errors


async def _accepts(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(20):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)  # another process's socket has no event to wait for
            else:
                writer.close()
                return
    raise AssertionError(f"nginx ended with {process.returncode}")
