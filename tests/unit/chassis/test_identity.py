from __future__ import annotations

from datetime import timedelta

import jwt
import pytest

from services.chassis.errors import PermissionDenied, Unauthenticated
from services.chassis.identity import IdentitySigner, IdentityVerifier, Principal, acting_as, current_principal
from tests.support.clock import FakeClock
from tests.support.platform import KEY

ANN = Principal(tenant="acme", user="ann", scopes=frozenset({"runs"}), groups=frozenset({"finance"}), actor="gateway")


def test_a_principal_survives_its_token() -> None:
    clock = FakeClock()
    assert IdentityVerifier(KEY, clock).verify(IdentitySigner(KEY, clock).mint(ANN)) == ANN


def test_a_token_ends() -> None:
    clock = FakeClock()
    token = IdentitySigner(KEY, clock, timedelta(seconds=60)).mint(ANN)
    clock.advance(60)
    with pytest.raises(Unauthenticated, match="expired"):
        IdentityVerifier(KEY, clock).verify(token)


def test_a_token_is_made_anew_while_the_last_one_is_still_valid() -> None:
    clock = FakeClock()
    signer, verifier = IdentitySigner(KEY, clock, timedelta(seconds=60)), IdentityVerifier(KEY, clock)
    first = signer.mint(ANN)
    clock.advance(29)
    assert signer.mint(ANN) == first
    clock.advance(1)
    assert signer.mint(ANN) != first
    assert verifier.verify(first) == verifier.verify(signer.mint(ANN)) == ANN


def test_an_unsigned_token_is_refused() -> None:
    claims = jwt.decode(IdentitySigner(KEY, FakeClock()).mint(ANN), options={"verify_signature": False})
    with pytest.raises(Unauthenticated):
        IdentityVerifier(KEY, FakeClock()).verify(jwt.encode(claims, "", algorithm="none"))


def test_a_missing_scope_is_named() -> None:
    with pytest.raises(PermissionDenied, match="approvals"):
        ANN.require("approvals")
    ANN.require("runs")
    Principal(tenant="acme", user="root", scopes=frozenset({"*"})).require("anything")


def test_outside_a_call_there_is_nobody() -> None:
    with pytest.raises(Unauthenticated):
        current_principal()
    with acting_as(ANN):
        assert current_principal() is ANN
    with pytest.raises(Unauthenticated):
        current_principal()
