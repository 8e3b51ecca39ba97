"""Orders of an operator to a broker: each says until when it is meant by that broker's clock, and for which epoch.

A broker that hangs reads an order when it wakes; by then another may reign, and whoever gave it may have given up.
"""

import asyncio
import json

from tandemq.client.session import Session
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode

ASK_MS = 5_000
ORDER_MS = 30_000
"""As long as who gave the order waits for its outcome."""


async def meant_now(session: Session, address: str) -> dict[str, str]:
    """Returns the fields that say so; none for a broker that tells neither its clock nor its epoch."""
    detail, info = await asyncio.gather(
        session.invoke(address, OperatorCode.HA_DETAIL, {}, timeout_ms=ASK_MS),
        session.invoke(address, RequestCode.EXCHANGE_BROKER_HA_INFO, {}, timeout_ms=ASK_MS),
    )
    fields = {}
    now = info.ext.get("tandemqNow", "") if info.code == ResponseCode.SUCCESS else ""
    if now.isdecimal():
        fields["expiresAt"] = str(int(now) + ORDER_MS)
    register = json.loads(bytes(detail.body)).get("register") if detail.code == ResponseCode.SUCCESS else None
    if isinstance(register, dict):
        fields["epoch"] = str(register["epoch"])
    return fields


async def order(session: Session, address: str, code: int, fields: dict[str, str], *, wait_ms: int = ORDER_MS) -> str:
    """Returns what the broker says it did; ReplyError with its reason if it refuses, RemotingError if it is silent."""
    meant = {**fields, **await meant_now(session, address)}
    reply = await session.invoke(address, code, meant, timeout_ms=wait_ms)
    return reply.raise_for_code().remark or "done"


async def promote(session: Session, address: str, role: str = "SYNC_MASTER", *, accept_loss: bool = False) -> str:
    """Makes a slave the master of its group: what `tandemq broker promote` and the console do."""
    fields = {"role": role, "acceptLoss": "true" if accept_loss else "false"}
    return await order(session, address, OperatorCode.PROMOTE, fields)
