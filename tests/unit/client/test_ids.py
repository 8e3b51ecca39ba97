"""Client ids and the UNIQ_KEY of messages."""

import os
from datetime import UTC, datetime

from tandemq.client.ids import MONTH_MS, UniqueKeys, client_id, local_ip

NOON = int(datetime(2026, 3, 15, 12, tzinfo=UTC).timestamp() * 1000)
MONTH_START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)


def test_a_key_has_the_layout_that_admin_tools_read() -> None:
    key = bytes.fromhex(UniqueKeys("10.1.2.3", pid=0x12345).next(NOON))
    assert len(key) == 16
    assert key[:4] == bytes([10, 1, 2, 3])
    assert key[4:6] == bytes([0x23, 0x45])
    assert int.from_bytes(key[10:14], "big") == NOON - MONTH_START


def test_keys_of_one_moment_differ() -> None:
    keys = UniqueKeys("10.1.2.3")
    assert len({keys.next(NOON) for _ in range(10_000)}) == 10_000


def test_two_generators_of_one_process_differ() -> None:
    one, other = (UniqueKeys("10.1.2.3", pid=1).next(NOON) for _ in range(2))
    assert one[:12] == other[:12]
    assert one[12:20] != other[12:20]


def test_a_new_month_starts_the_time_again() -> None:
    keys = UniqueKeys("10.1.2.3")
    keys.next(NOON)
    april = int(datetime(2026, 4, 2, tzinfo=UTC).timestamp() * 1000)
    assert int(keys.next(april)[20:28], 16) == 24 * 3600 * 1000
    assert MONTH_MS == 31 * 24 * 3600 * 1000


def test_client_ids_without_an_instance_name_are_unique() -> None:
    assert client_id("1.2.3.4", "one") == "1.2.3.4@one"
    assert client_id("1.2.3.4", "one", "unit") == "1.2.3.4@one@unit"
    first, second = client_id("1.2.3.4", ""), client_id("1.2.3.4", "")
    assert first != second
    assert first.startswith(f"1.2.3.4@{os.getpid()}#")


def test_the_local_address_is_one() -> None:
    assert len(local_ip().split(".")) == 4
