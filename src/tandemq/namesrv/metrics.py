"""The name server's numbers in Prometheus text format."""

from tandemq.namesrv.routes import RouteTable
from tandemq.remoting.server import ServerStatus


def render_metrics(routes: RouteTable, server: ServerStatus) -> bytes:
    gauges = {
        "tandemq_namesrv_brokers": ("Brokers registered.", len(routes.live())),
        "tandemq_namesrv_broker_groups": ("Broker groups known.", len(routes.groups())),
        "tandemq_namesrv_topics": ("Topics with a route.", len(routes.topics())),
        "tandemq_namesrv_connections": ("Open connections.", server.connections),
        "tandemq_namesrv_unsent_bytes": ("Answers not taken by their readers yet.", server.unsent_size),
    }
    counters = {
        "tandemq_namesrv_requests_total": ("Requests taken.", server.requests),
        "tandemq_namesrv_request_failures_total": ("Requests answered because of an error.", server.failures),
        "tandemq_namesrv_connections_total": ("Connections accepted.", server.connections_total),
        "tandemq_namesrv_connections_refused_total": ("Connections beyond the limit.", server.connections_refused),
        "tandemq_namesrv_bytes_in_total": ("Bytes received.", server.bytes_in),
        "tandemq_namesrv_bytes_out_total": ("Bytes sent.", server.bytes_out),
    }
    lines = []
    for kind, table in (("gauge", gauges), ("counter", counters)):
        for name, (meaning, value) in table.items():
            lines.append(f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n{name} {value}\n")
    return "".join(lines).encode()
