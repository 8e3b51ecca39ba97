"""failOnDataLoss decides."""

import pytest

from tandemq.spark.source.losses import tell_loss
from tandemq.spark.source.offsets import DataLost


def test_a_loss_fails_or_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataLost, match=r"3 messages are gone .failOnDataLoss=false reads what is left"):
        tell_loss("3 messages are gone", fail=True)
    tell_loss("3 messages are gone", fail=False)
    assert "3 messages are gone" in capsys.readouterr().err
