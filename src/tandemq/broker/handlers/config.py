"""GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG; the rule of what may change is `live_config`."""

from tandemq.broker.live_config import LiveConfig
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.codec.properties import properties_of, properties_text
from tandemq.errors import MalformedBody, ReplyError
from tandemq.remoting.access.needs import GET, UPDATE, needs, on_cluster
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

BODY_SIZE_MAX = 64 * 1024


class ConfigHandlers:
    def __init__(self, live: LiveConfig) -> None:
        self._live = live

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_CONFIG: self.show, RequestCode.UPDATE_BROKER_CONFIG: self.update}

    @needs(on_cluster(GET))
    def show(self, connection: Connection, command: Command) -> bytes:
        text = properties_text(self._live.properties())
        version = fastjson.dumps(bodies.data_version_json(self._live.version)).decode()
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, {"version": version}, text)

    @needs(on_cluster(UPDATE), shows_body=True)
    def update(self, connection: Connection, command: Command) -> bytes:
        if len(command.body) > BODY_SIZE_MAX:
            raise ReplyError(
                ResponseCode.INVALID_PARAMETER, f"{len(command.body)} bytes of properties, at most {BODY_SIZE_MAX}"
            )
        try:
            values = properties_of(command.body)
        except MalformedBody as error:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if not values:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, "the request names no property")
        self._live.update(values)
        return encode_response(command.opaque, ResponseCode.SUCCESS)
