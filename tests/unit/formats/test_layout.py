"""Names of files and directories of a store."""

from pathlib import Path

from tandemq.formats.layout import is_segment_name, queue_directory, segment_name


def test_files_are_named_after_their_first_byte() -> None:
    """Twenty digits, as RocketMQ names them."""
    assert segment_name(1 << 30) == "00000000001073741824"
    assert is_segment_name(segment_name(0))
    for name in ("0", "1073741824", "00000000001073741824.tmp", "0000000000107374182x"):
        assert not is_segment_name(name)


def test_a_queue_lies_below_its_topic() -> None:
    assert queue_directory(Path("/store"), "t", 3) == Path("/store/consumequeue/t/3")
