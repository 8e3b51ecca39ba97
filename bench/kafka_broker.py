"""Apache Kafka, one node, for the comparison of the pipelines: fetched by its Maven coordinates, started, stopped.

Broker 4.3.1. Of the Spark connector 4.2.0 is the newest that Maven has whole, except for its token provider, which is
taken from 4.0.0. Everything listens on 127.0.0.1 and is kept in the peers' cache, so a second use needs no network.
"""

import base64
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.peers import servers, tools

BROKER_VERSION = "4.3.1"
CONNECTOR_VERSION = "4.2.0"
HERE = Path(__file__).resolve().parent
_LOG4J = "2.25.3"
_READY_SECONDS_MAX = 90.0
_HOST = "127.0.0.1"

_BROKER_JARS = (
    ("org.apache.kafka", "kafka_2.13", BROKER_VERSION),
    ("org.apache.kafka", "kafka-tools", BROKER_VERSION),
    ("org.apache.logging.log4j", "log4j-core", _LOG4J),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J),
)
_CONNECTOR_JARS = (("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),)
_TOKENS = ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0")
_OF_CONNECTOR = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "kafka-clients-", "commons-pool2-")
"""What the connector needs beyond the jars that pyspark brings."""

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
_QUIET = "status = error\nrootLogger.level = ERROR\n"


def _dependency(group: str, artifact: str, version: str) -> str:
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
    )


def _resolved(name: str, wanted: tuple[tuple[str, str, str], ...], managed: tuple[tuple[str, str, str], ...]) -> str:
    """The class path of these artifacts; raises tools.Missing with the reason where it can't be had."""
    home = tools.CACHE / name
    listing = home / "classpath"
    if listing.exists():
        known = listing.read_text().strip()
        if all(Path(jar).exists() for jar in known.split(os.pathsep)):
            return known
    tools.need("java", "mvn")
    home.mkdir(parents=True, exist_ok=True)
    pom = home / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>peers</groupId><artifactId>jars</artifactId>"
        "<version>1</version><packaging>pom</packaging><dependencyManagement><dependencies>"
        + "".join(_dependency(*one) for one in managed)
        + "</dependencies></dependencyManagement><dependencies>"
        + "".join(_dependency(*one) for one in wanted)
        + "</dependencies></project>\n"
    )
    part = home / "classpath.part"
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
    tools.fetch(
        name,
        ["mvn", "-B", "-q", "-f", str(pom), f"-Dmaven.repo.local={tools.CACHE / 'm2'}", plugin,
         "-Dmdep.includeScope=runtime", f"-Dmdep.outputFile={part}"],
    )  # fmt: skip
    part.replace(listing)
    return listing.read_text().strip()


def connector_jars() -> str:
    """Comma-separated, for spark.jars."""
    path = _resolved(f"spark-kafka-{CONNECTOR_VERSION}", _CONNECTOR_JARS, (_TOKENS,))
    return ",".join(jar for jar in path.split(os.pathsep) if Path(jar).name.startswith(_OF_CONNECTOR))


@dataclass(frozen=True)
class Kafka:
    """A running broker."""

    bootstrap: str
    class_path: str

    def create_topic(self, name: str, partitions: int) -> None:
        command = ["java", "-Xmx128m", "-cp", self.class_path, "org.apache.kafka.tools.TopicCommand"]
        command += ["--bootstrap-server", self.bootstrap, "--create", "--topic", name, "--partitions", str(partitions)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise tools.Missing(f"Kafka refuses topic {name}: {(done.stdout + done.stderr).strip()[-300:]}")

    @contextlib.contextmanager
    def trickle(self, topic: str, per_second: int) -> Iterator[None]:
        """A producer that sends so many messages a second, to both partitions in turn."""
        command = ["java", "-Xmx128m", "-cp", self.class_path, str(HERE / "Trickle.java")]
        feeder = subprocess.Popen(
            [*command, self.bootstrap, topic, str(per_second)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield
        finally:
            feeder.terminate()
            feeder.wait()


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[Kafka]:
    """A broker with an empty log under `directory`; gone when the block ends."""
    class_path = _resolved(f"kafka-{BROKER_VERSION}", _BROKER_JARS, ())
    port, controller = servers.free_ports(2)
    directory.mkdir(parents=True)
    config, log = directory / "server.properties", directory / "broker.log"
    config.write_text(_PROPERTIES.format(host=_HOST, port=port, controller=controller, data=directory / "data"))
    (directory / "log4j2.properties").write_text(_QUIET)
    java = ["java", f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}", "-cp", class_path]
    cluster = base64.urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    format_ = [*java, "kafka.tools.StorageTool", "format", "--config", str(config), "--cluster-id", cluster]
    done = subprocess.run(format_, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise tools.Missing(f"Kafka can't format its log: {(done.stdout + done.stderr).strip()[-300:]}")
    with open(log, "wb") as out:
        broker = subprocess.Popen([*java[:1], "-Xmx1g", *java[1:], "kafka.Kafka", str(config)], stdout=out, stderr=out)
    try:
        _await_answer(broker, port, log)
        yield Kafka(f"{_HOST}:{port}", class_path)
    finally:
        broker.terminate()
        try:
            broker.wait(30)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _await_answer(broker: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while not _answers(port):
        if broker.poll() is not None or time.monotonic() > deadline:
            raise tools.Missing(f"Kafka does not start: {log.read_text(errors='replace').strip()[-300:]}")
        time.sleep(0.2)


def _answers(port: int) -> bool:
    """Whether a broker answers an ApiVersions request (key 18, version 0)."""
    request = struct.pack(">hhih", 18, 0, 7, 5) + b"bench"
    try:
        with socket.create_connection((_HOST, port), timeout=2) as link:
            link.sendall(struct.pack(">i", len(request)) + request)
            reply = link.recv(4096)
    except OSError:
        return False
    return len(reply) >= 10 and struct.unpack(">iih", reply[:10])[1:] == (7, 0)
