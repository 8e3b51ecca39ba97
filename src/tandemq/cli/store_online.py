"""`tandemq store rebuild --online`: a running broker builds its queues and index anew; we watch it do so."""

import asyncio
import json
from typing import Any

from tandemq.cli.render import client_config, note, print_json, progress, run
from tandemq.client.admin import Admin
from tandemq.client.config import ClientConfig
from tandemq.codec.codes import OperatorCode, ResponseCode
from tandemq.errors import StoreError

ASK_SECONDS = 0.2
TIMEOUT = 10.0
MEBIBYTE = 1 << 20


def rebuild_by_broker(address: str, as_json: bool) -> None:
    """Begins, shows how far it is until it is done, then what came of it. StoreError if it failed."""
    done = run(_rebuild(client_config(address), address))
    if done["error"]:
        raise StoreError(f"{address}: {done['error']}")
    if as_json:
        print_json(done)
        return
    note(
        f"{address}: {done['queues']} queues with {done['queueEntries']:,} entries and {done['indexFiles']} index "
        f"files built from the log, offsets {done['firstOffset']} to {done['endOffset']}, in {done['seconds']} s; "
        f"{done['queuesCorrected']} queues ended elsewhere before"
    )


async def _rebuild(config: ClientConfig, address: str) -> dict[str, Any]:
    async with Admin(config=config) as admin:
        status = await _ask(admin, address, OperatorCode.REBUILD_VIEWS)
        shown = 0
        size = (status["endOffset"] - status["firstOffset"]) // MEBIBYTE
        with progress("rebuilding (MiB)", size) as advance:
            while status["running"]:
                await asyncio.sleep(ASK_SECONDS)
                status = await _ask(admin, address, OperatorCode.REBUILD_STATUS)
                at = (status["position"] - status["firstOffset"]) // MEBIBYTE
                advance(at - shown)
                shown = at
        return status


async def _ask(admin: Admin, address: str, code: OperatorCode) -> dict[str, Any]:
    session = admin.session
    reply = await session.remoting.invoke(address, session.command(code, {}), TIMEOUT)
    reply.raise_for_code(ResponseCode.SUCCESS)
    found: dict[str, Any] = json.loads(bytes(reply.body))
    return found
