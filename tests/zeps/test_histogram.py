"""zambezi.zeps.histogram: durations by size."""

from zambezi.zeps.histogram import BOUNDS, Histogram


def test_each_duration_is_in_its_bucket_and_in_all_larger_ones() -> None:
    histogram = Histogram()
    for seconds in (0.0001, 0.00011, 0.3, 99.0):
        histogram.add(seconds)
    buckets = dict(histogram.buckets())
    assert list(buckets) == list(BOUNDS)
    assert (buckets[0.0001], buckets[0.00025], buckets[0.25], buckets[0.5], buckets[10.0]) == (1, 2, 2, 3, 3)
    assert histogram.count == 4


def test_a_clock_that_is_set_back_does_not_shrink_the_sum() -> None:
    histogram = Histogram()
    histogram.add(-5.0, 3)
    assert histogram.count == dict(histogram.buckets())[BOUNDS[0]] == 3
    assert histogram.seconds == 0.0
