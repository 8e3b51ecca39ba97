"""The name server's metrics are text that Prometheus reads."""

from prometheus_client.parser import text_string_to_metric_families

from tandemq.namesrv.metrics import render_metrics
from tandemq.namesrv.routes import RouteTable
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.server import RemotingServer


def test_an_empty_server_has_every_series() -> None:
    status = RemotingServer(RemotingConfig(listen_port=0), {}).status()
    families = {
        family.name: family for family in text_string_to_metric_families("".join(render_metrics(RouteTable(), status)))
    }
    assert families["tandemq_namesrv_brokers"].samples[0].value == 0
    assert families["tandemq_namesrv_requests"].type == "counter"
    assert all(family.documentation for family in families.values())
