"""The table of `make bench-peers`: what it shows of each server, and that every peer can be started as it says."""

from __future__ import annotations

import pytest

from benchmarks.peers.__main__ import table
from benchmarks.peers.catalogue import PEERS, SERVERS
from benchmarks.streaming.client import Heard
from benchmarks.streaming.measure import Report, Unsound, check


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_peers_are_compared_with_the_mean_of_what_proctor_did_in_the_same_run() -> None:
    first = Report(figures={"cpu 32": 0.1, "paced": 100.0, "tokens/s 1": 5000.0, "tokens/s 32": 8000.0})
    last = Report(figures={"cpu 32": 0.3, "paced": 100.0})
    peer = Report(figures={"cpu 32": 0.5, "paced": 25.0, "tokens/s 32": 2000.0})
    _, head, _, ours, theirs, again = table([("proctor", first), ("other", peer), ("proctor", last)]).splitlines()
    assert cells(head)[3] == "CPU s per 1,000 tokens at 32"
    assert cells(ours) == ["proctor", "–", "5,000 / 8,000 / –", "0.100", "100", "–"]
    assert cells(theirs) == ["other", "–", "– / 2,000 / – (0.25×)", "0.500 (2.50×)", "25 (0.25×)", "–"]
    assert cells(again)[3] == "0.300"


def test_without_proctor_nothing_is_compared() -> None:
    *_, line = table([("other", Report(figures={"tool loop": 7.0}))]).splitlines()
    assert cells(line)[-1] == "7.0"


async def test_a_measurement_that_fails_takes_no_other_with_it() -> None:
    async def losing() -> None:
        check([Heard(status=200, tokens=[0.0])], 2)

    kept = Report(figures={"paced": 1.0})
    await kept.take("200 streams", losing())
    assert kept.figures == {"paced": 1.0}
    assert kept.failures == ["200 streams: a stream of 2 tokens gave 1, HTTP 200 "]
    with pytest.raises(Unsound):
        await losing()


@pytest.mark.parametrize("name", PEERS)
def test_what_a_peer_is_started_with_is_here(name: str) -> None:
    peer = PEERS[name]
    assert (SERVERS / peer.folder).is_dir()
    modules = [word.partition(":")[0] for word in peer.command if word.endswith(":app")]
    assert all((SERVERS / peer.folder / f"{module}.py").is_file() for module in modules)
    assert any("{port}" in word for word in peer.command)
    assert peer.body("q [[n=1]]")
