"""What waits for an exact time, and the record of how far deliveries have come."""

from tandemq.broker.services.timer_heap import TimerHeap, TimerProgress


def test_the_heap_knows_time_and_lowest_offset() -> None:
    """Order by time; the lowest waiting offset moves when that one is settled."""
    heap = TimerHeap()
    for due, offset in ((30, 0), (10, 1), (20, 2)):
        heap.add(due, offset)
    assert (heap.next_due(), heap.lowest_offset(9), len(heap)) == (10, 0, 3)
    heap.settle()
    heap.settle()
    assert (heap.peek(), heap.lowest_offset(9)) == ((30, 0), 0)
    heap.settle()
    assert (heap.next_due(), heap.lowest_offset(9)) == (None, 9)


def test_progress_reads_back() -> None:
    """Settled: below the first offset, or looked at and due by then."""
    progress = TimerProgress.decode(TimerProgress(100, 5, 9).encode())
    assert progress.is_settled(4, 999)
    assert progress.is_settled(7, 100)
    assert not progress.is_settled(7, 101)
    assert not progress.is_settled(9, 1)
