"""Asks a RocketMQ master about its log, over its broker port: its HA protocol has no words for it.

And says why a slave of one should not be promoted.
"""

from tandemq.codec import bodies
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import CodecError, RemotingError, ReplyError
from tandemq.remoting.client import RemotingClient
from tandemq.replication.first_copy import MasterLog, wrong_first_record
from tandemq.replication.slave import SlaveShell
from tandemq.replication.slave_state import SlaveState

TIMEOUT = 5.0
SEGMENT_SIZE = "mappedFileSizeCommitLog"


class ClassicMaster:
    """The questions; each answer that does not come is an OSError."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def log_of(self, address: str) -> MasterLog:
        """Returns where its log begins and ends, and how large its files are if it tells."""
        body = await self._ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        try:
            table = bodies.load_object(body, "runtime info").get("table")
            if not isinstance(table, dict):
                raise CodecError("runtime info without a table")
            first, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (CodecError, KeyError, ValueError, TypeError) as error:
            raise OSError(f"its runtime info does not tell the range of its log: {error}") from error
        return MasterLog(max(first, 0), end, await self._segment_size(address))

    async def _segment_size(self, address: str) -> int:
        """Returns 0 where it does not tell: some clusters show a broker's configuration to administrators only."""
        try:
            text = (await self._ask(address, Command(RequestCode.GET_BROKER_CONFIG))).decode(errors="replace")
        except OSError:
            return 0
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key.strip() == SEGMENT_SIZE and value.strip().isdecimal():
                return int(value)
        return 0

    async def first_record(self, address: str) -> bytes:
        """Returns the record at offset 0 as it stands in the log."""
        data = await self._ask(address, Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}))
        if wrong := wrong_first_record(data):
            raise OSError(f"what it gives for the first record of its log is none: {wrong}")
        return data

    async def _ask(self, address: str, command: Command) -> bytes:
        try:
            reply = await self._client.invoke(address, command, TIMEOUT)
            reply.raise_for_code(ResponseCode.SUCCESS)
        except (RemotingError, ReplyError, CodecError) as error:
            raise OSError(str(error)) from error
        return bytes(reply.body)


async def hinders_promotion(slave: SlaveShell | None, survey: ClassicMaster, own_end: int, copying_to: int) -> str:
    """Returns why a slave of a RocketMQ master should not reign yet; empty if nothing is known against it.

    `copying_to` is what its record says of a copy that is not whole: after a restart nothing else may tell, since a
    master that is gone answers nobody.
    """
    is_classic = slave is not None and not isinstance(slave.state, SlaveState)
    goal = max(copying_to, slave.progress.known_end() if slave is not None and is_classic else 0)
    if own_end < goal:
        return (
            f"this slave has copied the log of its RocketMQ master up to {own_end}, and that one ended at {goal}: "
            "promote it when it has everything (`tandemq ha wait --caught-up`), or use --accept-loss"
        )
    place = slave.place if slave is not None and is_classic else None
    if place is None or not place.address:
        return ""
    try:
        await survey.log_of(place.address)
    except OSError:
        return ""
    return (
        f"the RocketMQ master at {place.address} still runs and can't be told to hand over: both would take messages. "
        f"Take its write permission (`mqadmin updateBrokerConfig -b {place.address} -k brokerPermission -v 4`), wait "
        "until this slave has everything (`tandemq ha wait --caught-up`), stop it and promote again; or use "
        "--accept-loss"
    )
