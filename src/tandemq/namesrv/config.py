"""Options of a name server: RocketMQ's NamesrvConfig. Ports and limits of its connections are RemotingConfig's."""

from dataclasses import dataclass

from tandemq.settings import check, setting

DEFAULT_PORT = 9876


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """What a name server does beyond keeping routes."""

    kv_config_path: str = setting(
        "kvConfigPath", "", "File that keeps the key-value configuration; empty keeps it in memory only."
    )
    order_message_enable: bool = setting(
        "orderMessageEnable", False, "Routes carry the order configuration of their topic.", tunable=True
    )
    return_order_topic_config: bool = setting(
        "returnOrderTopicConfigToBroker",
        True,
        "Registration replies carry the order configuration of all topics.",
        tunable=True,
    )
    broker_timeout_ms: int = setting(
        "brokerTimeoutMillis",
        120_000,
        "A broker that does not register again within this time is removed, unless its registration names another.",
        unit="ms",
        minimum=1000,
        maximum=86_400_000,
        tunable=True,
    )
    enable_all_topic_list: bool = setting(
        "enableAllTopicList", True, "Answer requests for the list of all topics.", tunable=True
    )
    enable_topic_list: bool = setting(
        "enableTopicList", True, "Answer requests for lists of topics by cluster or kind.", tunable=True
    )
    support_acting_master: bool = setting(
        "supportActingMaster",
        False,
        "Show the lowest slave of a group without master as its master, if its brokers ask for that.",
        tunable=True,
    )
    notify_min_broker_id_changed: bool = setting(
        "notifyMinBrokerIdChanged",
        False,
        "Tell the members of a group when its lowest broker id changes.",
        tunable=True,
    )
    delete_topic_with_registration: bool = setting(
        "deleteTopicWithBrokerRegistration",
        False,
        "A registration removes the routes of topics it no longer lists.",
        tunable=True,
    )
    brokers_max: int = setting("brokersMax", 10_000, "Brokers that may be registered at a time.", minimum=1)
    topic_routes_max: int = setting(
        "topicRoutesMax",
        2_000_000,
        "Pairs of topic and broker group held; a registration beyond it is refused.",
        minimum=1,
    )
    kv_entries_max: int = setting("kvEntriesMax", 100_000, "Entries of the key-value configuration.", minimum=1)
    metrics_port: int = setting(
        "metricsPort", 0, "Port of the Prometheus endpoint (GET /metrics); 0 = none.", minimum=0, maximum=65535
    )
    metrics_address: str = setting("metricsAddress", "127.0.0.1", "Address the Prometheus endpoint listens on.")

    def __post_init__(self) -> None:
        check(self)
