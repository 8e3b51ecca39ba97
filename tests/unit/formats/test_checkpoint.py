"""The checkpoint file: upstream's part, and ours in two places that take turns."""

from tandemq.formats.checkpoint import SIZE, Checkpoint, CheckpointFile, ViewsPoint


def point(offset: int, time: int = 5000) -> Checkpoint:
    views = ViewsPoint(
        offset=offset, queue_entries=7, index_name="20240131235959123", index_count=9, clean=False, boot_id=bytes(16)
    )
    return Checkpoint(
        log_timestamp=time, queue_timestamp=time, index_timestamp=time, confirmed_offset=offset, views=views
    )


def test_what_is_written_is_read() -> None:
    data = CheckpointFile().written(point(1000))
    found = CheckpointFile(data).read()
    assert len(data) == SIZE
    assert (found.views, found.confirmed_offset, found.certain) == (point(1000).views, 1000, True)
    assert found.time_limit == 2000
    assert data[:8] == (5000).to_bytes(8, "big")
    assert data[32:40] == (1000).to_bytes(8, "big")


def test_a_torn_write_leaves_the_one_before() -> None:
    """Whichever of our two places is damaged, the other counts."""
    file = CheckpointFile()
    file.written(point(1000))
    data = bytearray(file.written(point(2000)))
    for place in (512, 1024):
        torn = bytearray(data)
        torn[place + 20] ^= 1
        found = CheckpointFile(bytes(torn)).read().views
        assert found is not None
        assert found.offset in (1000, 2000)


def test_a_file_written_by_rocketmq_since_is_not_certain() -> None:
    data = bytearray(CheckpointFile().written(point(1000)))
    data[:8] = (9000).to_bytes(8, "big")
    found = CheckpointFile(bytes(data)).read()
    assert not found.certain
    assert found.views is not None


def test_a_strange_file_is_an_empty_checkpoint() -> None:
    assert CheckpointFile(b"\xff" * 5000).read().views is None
    assert CheckpointFile(b"").read() == Checkpoint(certain=False)
