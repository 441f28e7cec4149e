"""The command line's view of approvals: a live table, the audit log, its verification and export."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from services.cli.approvals import approvals_table, export_audit, show_audit, verify_audit, watch_approvals
from services.cli.gateway import Gateway


def approval(approval_id: str, state: str = "PENDING", reason: str = "to compute") -> dict[str, Any]:
    return {
        "approval_id": approval_id,
        "state": f"APPROVAL_STATE_{state}",
        "tool": "run_code",
        "requested_by": "ann",
        "reason": reason,
    }


def shown(printable: object) -> str:
    console = Console(file=StringIO(), width=120)
    console.print(printable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def gateway(path: str, **reply: Any) -> Gateway:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == path
        return httpx.Response(200, **reply)

    return Gateway("http://gateway", "k1", httpx.MockTransport(answer))


def test_the_table_counts_what_waits_and_keeps_what_was_settled_last() -> None:
    text = shown(approvals_table([approval("a1"), approval("a2", "APPROVED"), approval("a3")]))
    assert "2 waiting" in text
    assert text.index("a1") < text.index("a3") < text.index("a2")


def test_a_hostile_reason_cannot_write_to_the_terminal() -> None:
    text = shown(approvals_table([approval("a1", reason="[red]\x1b[2Jclear")]))
    assert "\x1b" not in text
    assert "[red]" in text


def test_watching_outside_a_terminal_prints_a_line_for_each_change() -> None:
    body = (
        b'data: {"approval_id":"a1","state":"APPROVAL_STATE_DENIED","tool":"t","requested_by":"ann","reason":"r"}\n\n'
    )
    console = Console(file=StringIO(), width=120)
    watch_approvals(gateway("/v1/approvals/stream", content=body), console)
    assert console.file.getvalue() == "a1 · denied · t · ann · r\n"  # type: ignore[attr-defined]


def test_verifying_says_where_the_chain_breaks() -> None:
    console = Console(file=StringIO(), width=120)
    good = {"intact": True, "entries": 3, "head_hash": "abc", "broken_at": 0, "problem": ""}
    assert verify_audit(gateway("/v1/audit/verify", json=good), console)
    bad = {**good, "intact": False, "broken_at": 2, "problem": "the hash differs"}
    assert not verify_audit(gateway("/v1/audit/verify", json=bad), console)
    assert console.file.getvalue() == "intact: 3 entries, head abc\nbroken at entry 2: the hash differs\n"  # type: ignore[attr-defined]


def test_the_log_is_shown_and_exported_whole(tmp_path: Path) -> None:
    entry = {"at": "2026-01-05T12:00:00Z", "actor": "bob", "action": "denied", "subject": "a1", "hash": "f" * 64}
    console = Console(file=StringIO(), width=120)
    show_audit(gateway("/v1/audit", json={"entries": [entry], "next_page_token": ""}), console)
    assert "bob" in console.file.getvalue()  # type: ignore[attr-defined]
    file = tmp_path / "audit.jsonl"
    assert export_audit(gateway("/v1/audit/export", content=b'{"a":1}\n{"b":2}\n'), file) == 2
    assert file.read_text() == '{"a":1}\n{"b":2}\n'
