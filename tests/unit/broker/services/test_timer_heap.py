"""What waits for an exact time, and the record of how far deliveries have come."""

from tandemq.broker.services.timer_heap import OFFSET_BITS, TimerHeap, TimerProgress


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


def test_offsets_that_are_left_out_wait_for_nothing() -> None:
    """Many at once, with gaps; what is done with at the low end takes no room."""
    heap = TimerHeap()
    heap.add_many([(30 << OFFSET_BITS) + 5, (10 << OFFSET_BITS) + 7])
    heap.add_many([])
    heap.add(20, 100)
    assert (len(heap), heap.lowest_offset(0)) == (3, 5)
    heap.settle()
    heap.settle()
    assert (heap.peek(), heap.lowest_offset(0)) == ((30, 5), 5)
    heap.settle()
    assert heap.lowest_offset(101) == 101
    heap.add(40, 101)
    assert (heap.lowest_offset(0), heap.peek(), len(heap._is_done)) == (101, (40, 101), 1)


def test_what_is_discarded_is_not_met_again() -> None:
    """Wherever it stands, twice too, and after others made room at the low end."""
    heap = TimerHeap()
    for due, offset in ((10, 0), (20, 1), (30, 2), (40, 3)):
        heap.add(due, offset)
    heap.discard(0)
    heap.discard(2)
    heap.discard(2)
    assert (heap.peek(), len(heap)) == ((20, 1), 2)
    heap.settle()
    assert heap.lowest_offset(9) == 3
    heap.discard(0)
    assert (heap.peek(), heap.next_due(), len(heap)) == ((40, 3), 40, 1)


def test_progress_reads_back() -> None:
    """Settled: below the first offset, or looked at and due by then."""
    progress = TimerProgress.decode(TimerProgress(100, 5, 9).encode())
    assert progress.is_settled(4, 999)
    assert progress.is_settled(7, 100)
    assert not progress.is_settled(7, 101)
    assert not progress.is_settled(9, 1)
