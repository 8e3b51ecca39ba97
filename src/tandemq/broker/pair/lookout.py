"""Asks around who is in the group and what each one is: the facts for reign.py.

Every name server and every remembered address is asked, all at once, under one short deadline: a dead one delays
nobody for longer than that.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from tandemq.broker.live_config import LiveConfig
from tandemq.broker.pair.peer_book import PeerBook
from tandemq.broker.pair.reign import Claim, Seen, View
from tandemq.codec import bodies
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.codec.ha_register import Register
from tandemq.errors import CodecError, RemotingError
from tandemq.remoting.client import RemotingClient
from tandemq.replication.epochs import place_of
from tandemq.replication.metadata import ask_ha_info

OPEN = "open"
SLAVE = "slave"
TABLE_SECONDS = 3.0
"""For a name server to tell who is in the group, when nobody waits for it."""


class Lookout:
    def __init__(
        self,
        client: RemotingClient,
        asking_client: RemotingClient,
        live: LiveConfig,
        group: str,
        address: str,
        book: PeerBook,
    ) -> None:
        """`client` speaks to name servers, `asking_client` to brokers of the group."""
        self._client = client
        self._asking_client = asking_client
        self._live = live
        self._group = group
        self._address = address
        self._book = book

    async def look(self, seconds: float) -> View:
        """Asks name servers and members. Takes at most `seconds` for the name servers and as much for the members."""
        tables = await self.tables(seconds)
        holders = [table[0] for table in tables if table.get(0, self._address) != self._address]
        named = [address for table in tables for address in table.values()]
        seen = await self._ask_all((*named, *self._book.addresses), (), seconds)
        # A slave may follow a master that neither a name server nor our book names.
        seen += await self._ask_all((one.follows for one in seen), [one.address for one in seen], seconds)
        self._book.note(one.address for one in seen if one.is_master or one.claim[0] or one.address in named)
        return View(seen=seen, holder=holders[0] if holders else "", servers_answered=bool(tables))

    async def tables(self, seconds: float) -> list[dict[int, str]]:
        """Returns broker id -> address of our group, from every name server that answers."""
        servers = self._live.broker.namesrv_addresses
        found = await asyncio.gather(*(self._table(server, seconds) for server in servers))
        return [table for table in found if table is not None]

    async def addresses(self) -> dict[int, str]:
        """Returns broker id -> address of our group, as the name servers tell."""
        found: dict[int, str] = {}
        for table in reversed(await self.tables(TABLE_SECONDS)):
            found.update(table)
        return found

    async def free_id(self) -> int:
        """Returns the smallest slave id nobody in the group has, as far as name servers know."""
        taken = (await self.addresses()).keys()
        return next(number for number in range(1, 1024) if number not in taken)

    async def _table(self, server: str, seconds: float) -> dict[int, str] | None:
        try:
            reply = await self._client.invoke(server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), seconds)
            groups, _ = bodies.cluster_info_of(bodies.load_object(reply.body, "clusterInfo"))
        except (RemotingError, CodecError):
            return None
        group = groups.get(self._live.broker.broker_name)
        return dict(group.addresses) if group is not None else {}

    async def _ask_all(self, addresses: Iterable[str], known: Iterable[str], seconds: float) -> list[Seen]:
        others = set(addresses) - {"", self._address, *known}
        found = await asyncio.gather(*(self._ask(address, seconds) for address in sorted(others)))
        return [one for one in found if one is not None]

    async def _ask(self, address: str, seconds: float) -> Seen | None:
        """Returns what a broker says, None if somebody else's broker has that address now."""
        try:
            info = await ask_ha_info(self._asking_client, address, seconds)
        except (RemotingError, CodecError):
            return Seen(address=address, answered=False)
        if info.get("tandemqGroup", self._group) != self._group:
            self._book.drop(address)
            return None
        return seen_of(address, info)


def seen_of(address: str, info: Mapping[str, str]) -> Seen:
    """Returns what a member's answer or announcement says; RocketMQ's has none of our fields."""
    return Seen(
        address=address,
        is_master=info.get("tandemqHa") == "1",
        is_open=info.get("tandemqPhase") == OPEN,
        claim=claim_of(info),
        follows=info.get("tandemqFollows", ""),
        end=int(info["tandemqEnd"]) if info.get("tandemqEnd", "").isdecimal() else 0,
        **_register_of(info),
    )


def register_facts(register: Register | None, replica: str) -> dict[str, str]:
    """Returns what a broker tells the others of its register."""
    if register is None:
        return {"tandemqReplica": replica}
    holder = register.find(register.holder)
    return {
        "tandemqReplica": replica,
        "tandemqGroupId": register.group_id,
        "tandemqRegister": f"{register.epoch}.{register.revision}",
        "tandemqHolder": register.holder,
        "tandemqHolderAddress": (holder.address if holder is not None else "") or place_of(register.holder),
    }


def _register_of(info: Mapping[str, str]) -> dict[str, Any]:
    epoch, _, revision = info.get("tandemqRegister", "").partition(".")
    if not (epoch.isdecimal() and revision.isdecimal()):
        return {}
    return {
        "group_id": info.get("tandemqGroupId", ""),
        "register": (int(epoch), int(revision)),
        "holder": info.get("tandemqHolder", ""),
        "holder_address": info.get("tandemqHolderAddress", ""),
    }


def claim_of(info: Mapping[str, str]) -> Claim:
    number = info.get("tandemqEpoch", "0")
    return (int(number) if number.isdecimal() else 0, info.get("tandemqEpochId", ""))
