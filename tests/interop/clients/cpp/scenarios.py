"""What applications do with the C++ client inside PyPI's `rocketmq==0.4.4`, one story each.

    HOME=SCRATCH python scenarios.py NAMESRV BROKER_ADDR [NAME ...]

Prints "ok NAME (s)" or "FAIL NAME: why" a line, then "N passed, N failed"; exit status 1 if any failed. The stories run
side by side: each has its own topic, group and client instance. The wheel has no transactions, SQL filters or
request-reply. The client writes logs and broadcast offsets below HOME: give it one of its own.

`batch-elements` is ours alone: the client marks a batch with "1" where it should say "true"; the real broker reads that
as "no batch" and stores the encoded batch as one message, so there a consumer gets one message instead of twenty.
"""

import base64
import hmac
import json
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage, SendStatus
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, dll

NAMESRV, BROKER = sys.argv[1:3]
RUN = f"{time.time_ns() // 1_000_000:x}"
CONSUMED, AGAIN = 0, 1
ACCESS_KEY, SECRET_KEY = os.environ.get("ROCKETMQ_ACCESS_KEY", ""), os.environ.get("ROCKETMQ_SECRET_KEY", "")
PATIENCE = 3  # the stories give seconds of a quiet machine
NOT_BY_DEFAULT = {"batch-elements"}


class Failed(Exception):
    """What a story found wrong."""


# ---- stories --------------------------------------------------------------------------------------------------------


def send_sync() -> None:
    topic = create_topic("sync", 4)
    ids = set()
    for i in range(40):
        result = sender.send_sync(message(topic, "a", f"k{i}", f"body {i}"))
        check(result.status == SendStatus.OK, f"status {result.status}")
        ids.add(result.msg_id)
    check(len(ids) == 40 and "" not in ids, f"message ids: {len(ids)}")
    seen = reading("sync", topic)
    until(30, lambda: len(seen) == 40, lambda: f"received {len(seen)}")
    check(seen["k7"].body == b"body 7", f"body {seen['k7'].body!r}")
    by_queue: dict[int, list[int]] = {}
    for kept in seen.values():
        by_queue.setdefault(kept.queue_id, []).append(kept.queue_offset)
    check(len(by_queue) == 4, f"queues used: {sorted(by_queue)}")
    check(all(sorted(offsets) == list(range(len(offsets))) for offsets in by_queue.values()), f"offsets {by_queue}")


def send_async() -> None:
    topic = create_topic("async", 4)
    done: list[object] = []
    for i in range(100):
        sender.send_async(message(topic, "a", f"k{i}", "body"), done.append, done.append)
    until(20, lambda: len(done) >= 100, lambda: f"answered {len(done)}")
    bad = [result for result in done if getattr(result, "status", None) != SendStatus.OK]
    check(not bad, f"not accepted: {bad[:3]}")
    ids = Counter(str(getattr(result, "msg_id", result)) for result in done)
    check(len(done) == 100, f"answered {len(done)}, more than once: {[key for key, count in ids.items() if count > 1]}")
    seen = reading("async", topic)
    until(30, lambda: len(seen) == 100, lambda: f"received {len(seen)}")


def send_oneway() -> None:
    topic = create_topic("oneway", 2)
    for i in range(100):
        sender.send_oneway(message(topic, "a", f"k{i}", "body"))
    seen = reading("oneway", topic)
    until(30, lambda: len(seen) == 100, lambda: f"received {len(seen)}")


def send_batch() -> None:
    topic = create_topic("batch", 1)
    result = sender.send_batch([message(topic, f"t{i % 3}", f"k{i}", f"body {i};") for i in range(20)])
    check(result.status == SendStatus.OK, f"status {result.status}")
    sizes: list[int] = []
    consumer("batch", topic, "*", lambda m: sizes.append(m.store_size) or CONSUMED)
    until(30, lambda: sum(sizes) > 20 * len("body 0;"), lambda: f"stored sizes {sizes}")


def batch_elements() -> None:
    topic = create_topic("elements", 1)
    sender.send_batch(
        [message(topic, f"t{i % 3}", f"k{i}", "x" * 300 + f" {i}") for i in range(20)]
    )  # > 4096: compressed
    seen = reading("elements", topic)
    until(30, lambda: len(seen) == 20, lambda: f"received {sorted(seen)}")
    for i in range(20):
        kept = seen[f"k{i}"]
        check(kept.tags == b"t%d" % (i % 3) and kept.queue_offset == i, f"message {i}: {kept}")
        check(kept.body == b"x" * 300 + b" %d" % i, f"body of {i}: {kept.body!r}")


def send_auto_create() -> None:
    topic = f"cpp_auto_{RUN}"
    check(sender.send_sync(message(topic, "a", "k", "body")).status == SendStatus.OK, "not accepted")
    until(40, lambda: ask(NAMESRV, 105, {"topic": topic})["code"] == 0, lambda: "no route")
    seen = reading("auto", topic)
    until(30, lambda: len(seen) == 1, lambda: "not read back")


def send_large_compressed() -> None:
    topic = create_topic("large", 1)
    text = "abcdefghij" * 10_000
    sender.send_sync(message(topic, "a", "large", text))
    seen = reading("large", topic)
    until(30, lambda: len(seen) == 1, lambda: "nothing received")
    check(seen["large"].body == text.encode(), "the body differs")


def ordered() -> None:
    topic = create_topic("ordered", 4)
    for i in range(60):
        result = sender.send_orderly(message(topic, "a", f"k{i}", f"{i % 6} {i}"), i % 6)
        check(result.status == SendStatus.OK, f"status {result.status}")
    order: list[tuple[int, int]] = []
    refused: list[bytes] = []

    def handle(m: RecvMessage) -> int:
        if m.keys == b"k20" and not refused:  # once refused: the queue waits, nothing overtakes
            refused.append(m.keys)
            return AGAIN
        shard, number = m.body.split()
        order.append((int(shard), int(number)))
        return CONSUMED

    consumer("ordered", topic, "*", handle, orderly=True)
    until(60, lambda: len(order) >= 60, lambda: f"received {len(order)}")
    for shard in range(6):
        numbers = [number for s, number in order if s == shard]
        check(numbers == sorted(numbers) and len(numbers) == 10, f"order {shard}: {numbers}")
    check(bool(refused), "nothing was refused")


def pull() -> None:
    topic = create_topic("pull", 2)
    for i in range(50):
        sender.send_sync(message(topic, f"t{i % 2}", f"k{i}", f"body {i}"))
    c = PullConsumer(group("pull"))
    c.set_namesrv_addr(NAMESRV)
    sign(c)
    c.start()
    kept.append(c)
    check({m.keys for m in c.pull(topic)} == {b"k%d" % i for i in range(50)}, "not everything pulled")
    check(list(c.pull(topic)) == [], "pulled again")
    c.offset_table.clear()
    check({m.keys for m in c.pull(topic, "t1")} == {b"k%d" % i for i in range(1, 50, 2)}, "tag t1")


def tags() -> None:
    topic = create_topic("tags", 2)
    for i in range(90):
        sender.send_sync(message(topic, f"t{i % 3}", f"k{i}", "body"))
    seen = reading("tags", topic, "t0 || t2")
    until(30, lambda: len(seen) >= 60, lambda: f"received {len(seen)}")
    check({kept.tags for kept in seen.values()} == {b"t0", b"t2"}, "a filtered tag came through")


def long_poll() -> None:
    topic = create_topic("longpoll", 1)
    delays: list[float] = []
    flowing("longpoll", topic, lambda m: delays.append(time.time() - float(m.body)) or CONSUMED)
    for i in range(10):
        sender.send_sync(message(topic, "a", f"k{i}", str(time.time())))
        until(10, lambda sent=i + 1: len(delays) >= sent, lambda: f"received {len(delays)}")
    check(sorted(delays)[5] < 0.5, f"median delay {sorted(delays)[5]:.3f} s")


def broadcast() -> None:
    topic = create_topic("broadcast", 2)
    members: list[set[bytes]] = [set(), set()]
    for member in members:
        consumer("broadcast", topic, "*", lambda m, seen=member: seen.add(m.keys) or CONSUMED, broadcast=True)
    number = 0

    def warm() -> bool:
        nonlocal number
        number += 1
        sender.send_sync(message(topic, "a", f"warm{number}", "body"))
        return all(members)

    until(60, warm, lambda: "the first message never came")
    for i in range(20):
        sender.send_sync(message(topic, "a", f"k{i}", "body"))
    wanted = {b"k%d" % i for i in range(20)}
    until(30, lambda: all(wanted <= member for member in members), lambda: f"received {[len(m) for m in members]}")


def rebalance() -> None:
    topic = create_topic("rebalance", 8)
    queues: list[set[int]] = [set(), set()]
    keys: set[bytes] = set()
    rounds = 0

    def join(n: int) -> PushConsumer:
        return consumer("rebalance", topic, "*", lambda m: queues[n].add(m.queue_id) or keys.add(m.keys) or CONSUMED)

    def shares(first: int, second: int) -> None:
        def hold() -> bool:
            nonlocal rounds
            rounds += 1
            wanted = {b"k%d.%d" % (rounds, i) for i in range(16)}
            for seen in queues:
                seen.clear()
            for key in sorted(wanted):
                sender.send_sync(message(topic, "a", key.decode(), "body"))
            until(60, lambda: wanted <= keys, lambda: f"{len(wanted & keys)} of 16 messages of round {rounds}")
            return [len(seen) for seen in queues] == [first, second]

        until(60, hold, lambda: f"queues {queues}, wanted {first} and {second}")

    one = join(0)
    shares(8, 0)
    join(1)
    shares(4, 4)
    one.shutdown()
    shares(0, 8)


def offsets_survive() -> None:
    topic = create_topic("offsets", 2)
    first: set[bytes] = set()
    second: set[bytes] = set()
    for i in range(30):
        sender.send_sync(message(topic, "a", f"a{i}", "body"))
    c = consumer("offsets", topic, "*", lambda m: first.add(m.keys) or CONSUMED)
    until(30, lambda: len(first) == 30, lambda: f"first time {len(first)}")
    time.sleep(0.5)  # the last handler has to return before its offset counts
    c.shutdown()
    for i in range(10):
        sender.send_sync(message(topic, "a", f"b{i}", "body"))
    consumer("offsets", topic, "*", lambda m: second.add(m.keys) or CONSUMED)
    until(60, lambda: len(second) >= 10, lambda: f"second time {len(second)}")
    # What is read a second time comes before these, in each queue.
    check(all(key.startswith(b"b") for key in second), f"read again: {second}")


def delay() -> None:
    topic = create_topic("delay", 1)
    took: dict[bytes, float] = {}
    flowing("delay", topic, lambda m: took.setdefault(m.keys, time.time() - m.born_timestamp / 1000) and CONSUMED)
    for level in (1, 2, 0):
        m = message(topic, "a", f"level{level}", "body")
        if level:
            m.set_delay_time_level(level)
        sender.send_sync(m)
    until(20, lambda: len(took) == 3, lambda: f"arrived {took}")
    check(took[b"level0"] < 0.9, f"not delayed: {took}")
    check(0.9 <= took[b"level1"] < 3, f"1 s: {took}")
    check(4.9 <= took[b"level2"] < 8, f"5 s: {took}")


def retry_dead_letter() -> None:
    """The client has no setting for the number of tries: the group's counts. The second comes after 10 s."""
    topic = create_topic("retry", 1)
    name = group("retry")
    config = {"groupName": name, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 1, "brokerId": 0}
    answer = ask(BROKER, 200, {}, json.dumps(config).encode())
    check(answer["code"] == 0, f"creating the group: {answer}")
    update_topic(f"%RETRY%{name}", 1)  # there from the start: this client looks for new routes every 30 s only
    tries: list[int] = []

    def handle(m: RecvMessage) -> int:
        if m.keys == b"good":
            return CONSUMED
        tries.append(m.reconsume_times)
        return AGAIN

    consumer("retry", topic, "*", handle)
    for key in ("bad", "good"):
        sender.send_sync(message(topic, "a", key, "body"))
    until(75, lambda: len(tries) >= 2, lambda: f"tried {tries}")
    check(tries == [0, 1], f"tries {tries}")
    dead = f"%DLQ%{name}"
    update_topic(dead, 1)  # dead letters are write-only; permission 6 lets us look
    until(15, lambda: ask(NAMESRV, 105, {"topic": dead})["code"] == 0, lambda: "no dead letters")
    seen = reading("dead", dead)
    until(45, lambda: "bad" in seen, lambda: f"no dead letter read; tries {tries}, queue {max_offset(dead)}")
    check(seen["bad"].retry_topic == topic.encode(), f"dead letter of {seen['bad'].retry_topic!r}")


def max_offset(topic: str) -> object:
    """What the broker says about queue 0: to tell a message that was not stored from one that was not read."""
    answer = ask(BROKER, 30, {"topic": topic, "queueId": "0"})
    return answer.get("extFields", answer)


STORIES: dict[str, Callable[[], None]] = {
    "send-sync": send_sync,
    "send-async": send_async,
    "send-oneway": send_oneway,
    "send-batch": send_batch,
    "batch-elements": batch_elements,
    "send-auto-create": send_auto_create,
    "send-large-compressed": send_large_compressed,
    "ordered": ordered,
    "pull": pull,
    "tags": tags,
    "long-poll": long_poll,
    "broadcast": broadcast,
    "rebalance": rebalance,
    "offsets-survive": offsets_survive,
    "delay": delay,
    "retry-dead-letter": retry_dead_letter,
}

# ---- helpers --------------------------------------------------------------------------------------------------------

kept: list[object] = []  # the wheel's objects end their C++ halves when collected; these live until the program ends
sender: Producer
instances = iter(range(1, 1_000_000))


class Kept:
    """What a story wants to know of a message after its C++ half is gone."""

    def __init__(self, m: RecvMessage) -> None:
        self.body, self.tags, self.queue_id, self.queue_offset = m.body, m.tags, m.queue_id, m.queue_offset
        self.retry_topic = m.get_property("RETRY_TOPIC")


class PatientProducer(Producer):
    """The client gives up at once when another thread is just asking for a route; then it has to be asked again. The
    text of its last error is one for all threads: another's call may have emptied it."""

    def send_sync(self, *a: object) -> object:
        return self._patiently(super().send_sync, *a)

    def send_async(self, *a: object) -> object:
        return self._patiently(super().send_async, *a)

    def send_oneway(self, *a: object) -> object:
        return self._patiently(super().send_oneway, *a)

    def send_batch(self, *a: object) -> object:
        return self._patiently(super().send_batch, *a)

    def send_orderly(self, *a: object) -> object:
        return self._patiently(super().send_orderly, *a)

    def _patiently(self, send: Callable[..., object], *a: object) -> object:
        results: list[object] = []

        def sent() -> bool:
            try:
                results.append(send(*a))
            except Exception as error:
                if str(error).strip() and "No route info" not in str(error):
                    raise
            return bool(results)

        until(10, sent, lambda: "no route to the topic")
        return results[0]


def group(name: str) -> str:
    return f"GID_cpp_{name}_{RUN}"


def message(topic: str, tag: str, key: str, body: str) -> Message:
    m = Message(topic)
    m.set_tags(tag)
    m.set_keys(key)
    m.set_body(body)
    return m


def sign(client: Producer | PushConsumer | PullConsumer) -> None:
    """With ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY in the environment every request is signed."""
    if ACCESS_KEY:
        client.set_session_credentials(ACCESS_KEY, SECRET_KEY, "")


def consumer(
    name: str,
    topic: str,
    expression: str,
    handle: Callable[[RecvMessage], int],
    *,
    orderly: bool = False,
    broadcast: bool = False,
) -> PushConsumer:
    """A started consumer whose handler's status reaches the client: the wheel's own wrapper loses it."""
    model = MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING
    c = PushConsumer(group(name), orderly=orderly, message_model=model)
    c.set_namesrv_addr(NAMESRV)
    c.set_instance_name(f"{name}-{RUN}-{next(instances)}")
    c.set_thread_count(1)
    sign(c)
    ffi_check(dll.Subscribe(c._handle, topic.encode(), expression.encode()))
    c._register_callback(lambda _, m: int(handle(RecvMessage(m)) or CONSUMED))
    c.start()
    kept.append(c)
    return c


def reading(name: str, topic: str, expression: str = "*") -> dict[str, Kept]:
    """Reads a topic from its beginning, until the program ends; what came, by key."""
    seen: dict[str, Kept] = {}

    def handle(m: RecvMessage) -> int:
        seen[m.keys.decode()] = Kept(m)
        return CONSUMED

    consumer(f"read_{name}", topic, expression, handle)
    return seen


def flowing(name: str, topic: str, handle: Callable[[RecvMessage], int]) -> None:
    """A consumer that has received its first message: with upstream's broker this can take 30 s."""
    first = threading.Event()
    consumer(name, topic, "*", lambda m: first.set() or CONSUMED if m.keys == b"warm" else handle(m))
    sender.send_sync(message(topic, "a", "warm", "first"))
    check(first.wait(60), "the first message never came")


def ask(address: str, code: int, fields: dict[str, str], body: bytes = b"") -> dict[str, object]:
    """One remoting request by hand: the client has no admin calls."""
    if ACCESS_KEY:
        fields = {**fields, "AccessKey": ACCESS_KEY}
        content = "".join(fields[name] for name in sorted(fields)).encode() + body
        fields["Signature"] = base64.b64encode(hmac.digest(SECRET_KEY.encode(), content, "sha1")).decode()
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401, "extFields": fields}
    encoded = json.dumps(header).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 15) as link, link.makefile("rb") as answer:
        link.sendall(struct.pack(">ii", 4 + len(encoded) + len(body), len(encoded)) + encoded + body)
        size, header_size = struct.unpack(">ii", answer.read(8))
        frame = answer.read(size - 4)
    return json.loads(frame[: header_size & 0xFFFFFF])


def update_topic(topic: str, queues: int) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    answer = ask(BROKER, 17, fields)
    check(answer["code"] == 0, f"creating {topic}: {answer}")


def create_topic(name: str, queues: int) -> str:
    topic = f"cpp_{name}_{RUN}"
    update_topic(topic, queues)
    until(15, lambda: ask(NAMESRV, 105, {"topic": topic})["code"] == 0, lambda: f"{topic} has no route")
    return topic


def check(holds: bool, why: str) -> None:
    if not holds:
        raise Failed(why)


def until(seconds: float, condition: Callable[[], bool], why: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE * seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"after {PATIENCE * seconds} s: {why()}")
        time.sleep(0.05)  # the loop of `until`: this program can't import ours


def tell(name: str, results: dict[str, bool]) -> None:
    began = time.monotonic()
    try:
        STORIES[name]()
        line = f"ok {name} ({time.monotonic() - began:.1f} s)"
    except Exception as error:  # a story may fail in any way; the others go on
        line = f"FAIL {name}: {type(error).__name__} {error}"
    results[name] = line.startswith("ok")
    print(f"{line}\n", end="", flush=True)  # in one piece: the stories run side by side


def main() -> None:
    global sender
    sender = PatientProducer(group("p"), timeout=PATIENCE * 3000, max_message_size=1 << 20)
    sender.set_namesrv_addr(NAMESRV)
    ffi_check(dll.SetProducerInstanceName(sender._handle, f"p-{RUN}".encode()))
    sign(sender)
    sender.start()
    kept.append(sender)
    results: dict[str, bool] = {}
    names = sys.argv[3:] or [name for name in STORIES if name not in NOT_BY_DEFAULT]
    threads = [threading.Thread(target=tell, args=(name, results)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = list(results.values()).count(False)
    print(f"{len(results) - failed} passed, {failed} failed", flush=True)
    os._exit(1 if failed else 0)  # the C++ threads need not come to a rest


main()
