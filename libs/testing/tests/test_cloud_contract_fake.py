"""The fake cloud keeps the contract of Cloud: what passes with it passes with the adapter."""

import pytest

from sawhorse_testing.cloud_contract import CONTRACT, Check
from sawhorse_testing.cloud_worlds import FakeWorld


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
async def test_the_fake_cloud_keeps_the_contract(check: Check) -> None:
    await check(FakeWorld())
