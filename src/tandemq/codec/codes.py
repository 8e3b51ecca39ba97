"""Request and response codes of the remoting protocol, by RocketMQ's names.

Only codes that some part of TandemQ sends, answers or names in an error are listed; any other number on the wire stays
a plain int and is answered REQUEST_CODE_NOT_SUPPORTED.
"""

from enum import IntEnum


class RequestCode(IntEnum):
    """What a request asks for. Direction: c client, b broker, ns name server, adm admin tool, s slave."""

    SEND_MESSAGE = 10  # c→b
    PULL_MESSAGE = 11  # c→b
    QUERY_MESSAGE = 12  # c→b
    QUERY_CONSUMER_OFFSET = 14  # c→b
    UPDATE_CONSUMER_OFFSET = 15  # c→b
    UPDATE_AND_CREATE_TOPIC = 17  # adm→b
    UPDATE_AND_CREATE_TOPIC_LIST = 18  # adm→b
    GET_ALL_TOPIC_CONFIG = 21  # s→b
    UPDATE_BROKER_CONFIG = 25  # adm→b
    GET_BROKER_CONFIG = 26  # adm→b
    GET_BROKER_RUNTIME_INFO = 28  # adm→b
    SEARCH_OFFSET_BY_TIMESTAMP = 29  # c→b
    GET_MAX_OFFSET = 30  # c→b
    GET_MIN_OFFSET = 31  # c→b
    GET_EARLIEST_MSG_STORETIME = 32  # c→b
    VIEW_MESSAGE_BY_ID = 33  # c→b
    HEART_BEAT = 34  # c→b
    UNREGISTER_CLIENT = 35  # c→b
    CONSUMER_SEND_MSG_BACK = 36  # c→b
    END_TRANSACTION = 37  # c→b
    GET_CONSUMER_LIST_BY_GROUP = 38  # c→b
    CHECK_TRANSACTION_STATE = 39  # b→c
    NOTIFY_CONSUMER_IDS_CHANGED = 40  # b→c
    LOCK_BATCH_MQ = 41  # c→b
    UNLOCK_BATCH_MQ = 42  # c→b
    GET_ALL_CONSUMER_OFFSET = 43  # s→b
    GET_ALL_DELAY_OFFSET = 45  # s→b
    CHECK_CLIENT_CONFIG = 46  # c→b
    GET_TIMER_CHECK_POINT = 60  # s→b
    GET_TIMER_METRICS = 61  # s→b
    PUT_KV_CONFIG = 100  # adm→ns
    GET_KV_CONFIG = 101  # adm→ns
    DELETE_KV_CONFIG = 102  # adm→ns
    REGISTER_BROKER = 103  # b→ns
    UNREGISTER_BROKER = 104  # b→ns
    GET_ROUTEINFO_BY_TOPIC = 105  # c→ns
    GET_BROKER_CLUSTER_INFO = 106  # c,b→ns
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200  # adm→b
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201  # s→b
    GET_TOPIC_STATS_INFO = 202  # adm→b
    GET_CONSUMER_CONNECTION_LIST = 203  # adm→b
    GET_PRODUCER_CONNECTION_LIST = 204  # adm→b
    WIPE_WRITE_PERM_OF_BROKER = 205  # adm→ns
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206  # adm→ns
    DELETE_SUBSCRIPTIONGROUP = 207  # adm→b
    GET_CONSUME_STATS = 208  # adm→b
    DELETE_TOPIC_IN_BROKER = 215  # adm→b
    DELETE_TOPIC_IN_NAMESRV = 216  # adm→ns
    REGISTER_TOPIC_IN_NAMESRV = 217  # b→ns
    GET_KVLIST_BY_NAMESPACE = 219  # adm→ns
    RESET_CONSUMER_CLIENT_OFFSET = 220  # b→c
    GET_CONSUMER_STATUS_FROM_CLIENT = 221  # b→c
    INVOKE_BROKER_TO_RESET_OFFSET = 222  # adm→b
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223  # adm→b
    GET_TOPICS_BY_CLUSTER = 224  # adm→ns
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225  # adm→b
    QUERY_TOPIC_CONSUME_BY_WHO = 300  # adm→b
    QUERY_CONSUME_TIME_SPAN = 303  # adm→b
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304  # adm→ns
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305  # adm→b
    CLEAN_EXPIRED_CONSUMEQUEUE = 306  # adm→b
    GET_CONSUMER_RUNNING_INFO = 307  # adm→b→c
    QUERY_CORRECTION_OFFSET = 308  # adm→b
    CONSUME_MESSAGE_DIRECTLY = 309  # adm→b→c
    SEND_MESSAGE_V2 = 310  # c→b
    GET_UNIT_TOPIC_LIST = 311  # adm→ns
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312  # adm→ns
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313  # adm→ns
    CLONE_GROUP_OFFSET = 314  # adm→b
    VIEW_BROKER_STATS_DATA = 315  # adm→b
    CLEAN_UNUSED_TOPIC = 316  # adm→b
    GET_BROKER_CONSUME_STATS = 317  # adm→b
    UPDATE_NAMESRV_CONFIG = 318  # adm→ns
    GET_NAMESRV_CONFIG = 319  # adm→ns
    SEND_BATCH_MESSAGE = 320  # c→b
    QUERY_CONSUME_QUEUE = 321  # adm→b
    QUERY_DATA_VERSION = 322  # b→ns
    RESUME_CHECK_HALF_MESSAGE = 323  # adm→b
    SEND_REPLY_MESSAGE = 324  # c→b
    SEND_REPLY_MESSAGE_V2 = 325  # c→b
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326  # b→c
    ADD_WRITE_PERM_OF_BROKER = 327  # adm→ns
    GET_ALL_PRODUCER_INFO = 328  # adm→b
    DELETE_EXPIRED_COMMITLOG = 329  # adm→b
    QUERY_TOPICS_BY_CONSUMER = 343  # adm→b
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345  # adm→b
    GET_TOPIC_CONFIG = 351  # adm→b
    GET_SUBSCRIPTIONGROUP_CONFIG = 352  # adm→b
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353  # adm→b
    LITE_PULL_MESSAGE = 361  # c→b
    RECALL_MESSAGE = 370  # c→b
    QUERY_ASSIGNMENT = 400  # c→b
    SET_MESSAGE_REQUEST_MODE = 401  # adm→b
    GET_ALL_MESSAGE_REQUEST_MODE = 402  # s→b
    GET_BROKER_MEMBER_GROUP = 901  # b→ns
    BROKER_HEARTBEAT = 904  # b→ns
    NOTIFY_MIN_BROKER_ID_CHANGE = 905  # ns→b
    EXCHANGE_BROKER_HA_INFO = 906  # b→b
    GET_BROKER_HA_STATUS = 907  # adm→b
    RESET_MASTER_FLUSH_OFFSET = 908  # b→b
    AUTH_CREATE_USER = 3001  # adm→b
    AUTH_UPDATE_USER = 3002  # adm→b
    AUTH_DELETE_USER = 3003  # adm→b
    AUTH_GET_USER = 3004  # adm→b
    AUTH_LIST_USER = 3005  # adm→b
    AUTH_CREATE_ACL = 3006  # adm→b
    AUTH_UPDATE_ACL = 3007  # adm→b
    AUTH_DELETE_ACL = 3008  # adm→b
    AUTH_GET_ACL = 3009  # adm→b
    AUTH_LIST_ACL = 3010  # adm→b


FIRST_OWN_CODE, LAST_OWN_CODE = 32_100, 32_199
"""Requests of our own; a range that RocketMQ does not use. Those of replication are in `replication/metadata.py`."""


def is_own_code(code: int) -> bool:
    """Returns whether a request is one that only parts of TandemQ make."""
    return FIRST_OWN_CODE <= code <= LAST_OWN_CODE


class OperatorCode(IntEnum):
    """Requests of our own tools to our own servers."""

    PROMOTE = 32102
    """Makes a slave the master of its group."""
    DEMOTE = 32103
    """Makes a master hand over."""
    HA_DETAIL = 32105
    """Asks a broker for everything about its replication."""
    REBUILD_VIEWS = 32111
    REBUILD_STATUS = 32112
    CHALLENGE = 32121
    """Asks a server for the challenge that the requests of this connection are signed with; needs no account."""
    GET_USERS = 32122
    """Asks a master for its users and policies."""
    GET_EVENTS = 32131
    """Asks a broker what happened to its replication lately."""
    GET_AUDIT = 32132
    """Asks a server for the last lines of its audit log."""


class ResponseCode(IntEnum):
    """What an answer says; anything but SUCCESS carries a remark."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500


def code_name(code: int) -> str:
    """Returns the request code's name, or its number when we don't know it; for logs and metrics."""
    return _REQUEST_NAMES.get(code, str(code))


_REQUEST_NAMES: dict[int, str] = {int(member): member.name for member in (*RequestCode, *OperatorCode)}
