import msgspec
import pytest

from tandemq.backup.manifest import FilePart, Manifest, SegmentPart, decode, encode
from tandemq.errors import StoreError

PARTS = [SegmentPart(4096, "commitlog/00000000000000004096", 4096, 1), SegmentPart(8192, "commitlog/x+100", 100, 2)]
FILE = FilePart("config/topics.json", "tables/1/config/topics.json", 3, 4)
WHOLE = Manifest(8292, 1, 4096, 200, 20, 100, "1s 5s", PARTS, [FILE])


def test_it_comes_back_as_it_was_and_knows_its_objects() -> None:
    assert decode(encode(WHOLE), "backup.json") == WHOLE
    assert WHOLE.first_offset == 4096
    assert WHOLE.names == {part.name for part in PARTS} | {FILE.name}


@pytest.mark.parametrize(
    "wrong",
    [
        {"segments": PARTS[:1]},
        {"segments": PARTS[1:] + PARTS[:1]},
        {"files": [FilePart("../../etc/passwd", "x", 1, 1)]},
        {"files": [FilePart("/etc/passwd", "x", 1, 1)]},
    ],
    ids=["a hole", "out of order", "a path that leads out", "an absolute path"],
)
def test_what_can_not_be_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(StoreError, match=r"s3://b/backup\.json"):
        decode(encode(msgspec.structs.replace(WHOLE, **wrong)), "s3://b/backup.json")


@pytest.mark.parametrize("data", [b"", b"{}", encode(WHOLE).replace(b"8292", b"8293")])
def test_a_damaged_one_is_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="take the backup anew"):
        decode(data, "backup.json")
