"""Signatures as real clients compute them."""

from tandemq.codec.acl import is_signed_by, sign, signature


def test_reference_vectors() -> None:
    assert signature({"AccessKey": "AK1", "queueId": "0", "topic": "T"}, b"", "SK1") == "CICusSIWGGrEcx5g+C2fRsM3OwM="
    captured = {"AccessKey": "", "OnsChannel": "ALIYUN", "topic": "TopicA"}
    assert signature(captured, b"", "") == "Sf55A+YZN21izFtJZ+36oINzoLw="


def test_signed_requests_are_recognised_and_changes_are_not() -> None:
    ext = sign({"topic": "T", "queueId": "0"}, b"body", "AK1", "SK1", "token")
    assert is_signed_by(ext, b"body", "SK1")
    assert is_signed_by(ext, memoryview(b"body"), "SK1")
    assert not is_signed_by(ext, b"Body", "SK1")
    assert not is_signed_by(ext, b"body", "SK2")
    assert not is_signed_by({**ext, "queueId": "1"}, b"body", "SK1")
    assert not is_signed_by({name: ext[name] for name in ext if name != "Signature"}, b"body", "SK1")
    assert not is_signed_by({**ext, "Signature": "ünlesbar"}, b"body", "SK1")


def test_fields_some_clients_leave_out() -> None:
    """Go sends the security token unsigned; Java up to 4.9.3 does so with the unique-key mark."""
    ext = {"AccessKey": "AK1", "topic": "T"}
    for name in ("SecurityToken", "_UNIQUE_KEY_QUERY"):
        assert is_signed_by({**ext, name: "x", "Signature": signature(ext, b"", "SK1")}, b"", "SK1")
