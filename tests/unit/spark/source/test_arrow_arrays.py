"""Arrays by their buffers hold what pyarrow's own would, and nobody needs pandas for them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tandemq.formats.record import encode_record
from tandemq.model.message import encode_properties
from tandemq.spark.source.arrow_arrays import (
    bools_in,
    numbers_in,
    of_bools,
    of_bytes,
    of_numbers,
    of_texts,
    repeated,
)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_numbers_there_and_back(dtype: type) -> None:
    values = np.arange(20, dtype=dtype)
    assert of_numbers(values).equals(pa.array(values))
    assert of_numbers(values[::3]).equals(pa.array(values[::3].copy())), "every third is not one piece of memory"
    assert numbers_in(of_numbers(values).slice(3, 5)).tolist() == [3, 4, 5, 6, 7]
    absent = values % 3 == 0
    assert of_numbers(values, absent).equals(pa.array(values, mask=absent))
    assert of_numbers(values[:0]).equals(pa.array(values[:0]))


def test_truth_there_and_back() -> None:
    values = np.arange(19) % 3 == 0
    assert of_bools(values).equals(pa.array(values))
    assert bools_in(of_bools(values).slice(5, 9)).tolist() == values[5:14].tolist()
    assert bools_in(pa.array([True, None, False])).tolist() == [True, False, False]


def test_texts_and_bytes() -> None:
    assert of_texts(["a", "", "äö"]).equals(pa.array(["a", "", "äö"]))
    assert of_bytes([b"\xff", b""]).equals(pa.array([b"\xff", b""]))
    assert of_texts([]).equals(pa.array([], pa.string()))
    assert repeated("ab", 3).equals(pa.array(["ab"] * 3))


READ = """
import sys
from tandemq.spark.columns import COLUMNS, KAFKA_COLUMNS, DEFAULT_COLUMNS, arrow_schema, spark_schema
from tandemq.spark.options import FileOptions, parse
from tandemq.spark.source.physical_order import LogBatchReader
kafka = KAFKA_COLUMNS, tuple(KAFKA_COLUMNS), {"schema": "kafka"}
for columns, names, extra in ((COLUMNS, DEFAULT_COLUMNS, {}), kafka):
    schema = arrow_schema(spark_schema(names, columns, may_be_damaged=False), columns, may_be_damaged=False)
    options = parse(FileOptions, {"path": sys.argv[1], "tags": "a", "keys": "k1,k2", "prefetch": "false", **extra})
    reader = LogBatchReader(options, schema)
    print(sum(batch.num_rows for piece in reader.partitions() for batch in reader.read(piece)))
print("pandas" in sys.modules)
"""


def test_a_read_imports_no_pandas(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    log, host = bytearray(), bytes([127, 0, 0, 1]) + (1).to_bytes(4, "big")
    for number in range(4):
        properties = {"KEYS": f"k{number}", "TAGS": "a", "own": "x", **({"more": "y"} if number == 2 else {})}
        log += encode_record(
            topic=f"t{number % 2}", queue_id=0, queue_offset=number, physical_offset=len(log), born_timestamp=1,
            born_host=host, store_timestamp=1, store_host=host, body=b"body", properties=encode_properties(properties),
        )  # fmt: skip
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log + bytes(4096 - len(log)))
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.split() == ["2", "2", "False"], done.stderr
