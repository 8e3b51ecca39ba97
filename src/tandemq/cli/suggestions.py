"""What a shell suggests when Tab is pressed: topics, groups and brokers of the cluster that the command would use."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import typer

from tandemq.cli.connection import DEFAULT_NAMESRV, client_config
from tandemq.client.admin import Admin

SECONDS = 1.0
"""Nobody waits longer for a suggestion."""


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    return _matching(context, incomplete, lambda admin: admin.topics())


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    async def groups(admin: Admin) -> list[str]:
        return list(await admin.groups())

    return _matching(context, incomplete, groups)


def complete_broker(context: typer.Context, incomplete: str) -> list[str]:
    async def addresses(admin: Admin) -> list[str]:
        return [address for group in (await admin.cluster()).groups.values() for address in group.addresses.values()]

    return _matching(context, incomplete, addresses)


def _matching(context: typer.Context, incomplete: str, ask: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    """Returns what begins like that; nothing when the cluster does not answer in time, for whatever reason."""

    async def asked() -> list[str]:
        async with asyncio.timeout(SECONDS), Admin(config=client_config(namesrv, api_timeout_ms=900)) as admin:
            return await ask(admin)

    namesrv = context.params.get("namesrv") or DEFAULT_NAMESRV
    with contextlib.suppress(Exception):
        return sorted(name for name in asyncio.run(asked()) if name.startswith(incomplete))
    return []
