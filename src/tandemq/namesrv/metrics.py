"""The name server's numbers for a scraper."""

from collections.abc import Iterator

from tandemq.namesrv.routes import RouteTable
from tandemq.remoting.metrics_text import Family, build_info, counter, gauge, rendered
from tandemq.remoting.server import ServerStatus


def render_metrics(routes: RouteTable, server: ServerStatus) -> Iterator[str]:
    """Yields the text of a GET /metrics."""
    return rendered(_families(routes, server))


def _families(routes: RouteTable, server: ServerStatus) -> Iterator[Family]:
    yield build_info()
    yield gauge("tandemq_namesrv_brokers", "Brokers registered.", len(routes.live()))
    yield gauge("tandemq_namesrv_broker_groups", "Broker groups known.", routes.group_count)
    yield gauge("tandemq_namesrv_topics", "Topics with a route.", routes.topic_count)
    yield gauge("tandemq_namesrv_connections", "Open connections.", server.connections)
    yield gauge(
        "tandemq_namesrv_unsent_bytes", "Bytes of answers that their readers have not taken.", server.unsent_size
    )
    yield counter("tandemq_namesrv_requests_total", "Requests taken.", server.requests)
    yield counter("tandemq_namesrv_request_failures_total", "Requests answered with an error.", server.failures)
    yield counter("tandemq_namesrv_connections_total", "Connections accepted.", server.connections_total)
    yield counter(
        "tandemq_namesrv_connections_refused_total", "Connections beyond the limit.", server.connections_refused
    )
    turn = server.longest_turn
    yield Family(
        "tandemq_loop_longest_turn_seconds", "gauge", "The longest the loop was held lately, and by what.",
        [((turn.what,), turn.seconds)], ("what",),
    )  # fmt: skip
    yield counter("tandemq_namesrv_bytes_in_total", "Bytes received.", server.bytes_in)
    yield counter("tandemq_namesrv_bytes_out_total", "Bytes sent.", server.bytes_out)
