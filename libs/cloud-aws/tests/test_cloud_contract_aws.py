"""The adapter keeps the contract of Cloud, against the sandbox's AWS."""

from typing import Any

import pytest

from sawhorse_testing.cloud_contract import CONTRACT, Check

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
async def test_the_adapter_keeps_the_contract(check: Check, world: Any) -> None:
    await check(world)
