"""What happens when messages are gone before they were read: `failOnDataLoss` decides, with numbers."""

from tandemq.spark.runtime.task_log import note
from tandemq.spark.source.offsets import DataLost


def tell_loss(text: str, fail: bool) -> None:
    """Raises DataLost, or notes the loss in the task's log if the user accepts it."""
    if fail:
        raise DataLost(f"{text} (failOnDataLoss=false reads what is left)")
    note(text)
