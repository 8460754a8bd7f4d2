"""Histograms of durations as the traffic manager keeps them: 32 buckets of powers of two, in ns.

Bucket 0 holds 0 ns, bucket b 2^(b-1) .. 2^b - 1 ns, bucket 31 everything from 2^30 ns (1.07 s) on (docs/contract.md,
section 3).
Pure integers.
"""

from __future__ import annotations

from dataclasses import dataclass

BUCKETS = 32


def lower_ns(bucket: int) -> int:
    """The least duration of a bucket."""
    return 0 if bucket == 0 else 1 << (bucket - 1)


def upper_ns(bucket: int) -> int:
    """The largest duration of a bucket; of the last one, which has none, its least."""
    return lower_ns(bucket) if bucket == BUCKETS - 1 else (1 << bucket) - 1


def bucket_of(duration_ns: int) -> int:
    """The bucket that a duration is counted in."""
    return min(duration_ns.bit_length(), BUCKETS - 1)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket."""

    counts: tuple[int, ...] = (0,) * BUCKETS

    @property
    def total(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    def since(self, earlier: Histogram) -> Histogram:
        """What came between two readings; the whole of the later one where it was cleared in between."""
        pairs = list(zip(self.counts, earlier.counts, strict=True))
        if any(now < before for now, before in pairs):
            return self
        return Histogram(tuple(now - before for now, before in pairs))

    def cumulative(self) -> list[int]:
        """Durations up to the end of each bucket, as Prometheus counts."""
        total, result = 0, []
        for count in self.counts:
            total += count
            result.append(total)
        return result

    def bounds_ns(self, percent: int) -> tuple[int, int] | None:
        """The bucket (least and largest duration) that the quantile is in; None of nothing."""
        found = self._find(percent)
        return None if found is None else (lower_ns(found[0]), upper_ns(found[0]))

    def quantile_ns(self, percent: int) -> int | None:
        """The quantile (nearest rank), placed evenly within its bucket as Prometheus' histogram_quantile does; rounded
        down. None of nothing; of the last bucket its least duration."""
        found = self._find(percent)
        if found is None:
            return None
        bucket, rank = found
        low, high = lower_ns(bucket), upper_ns(bucket)
        return low + (high - low) * rank // self.counts[bucket]

    def _find(self, percent: int) -> tuple[int, int] | None:
        """Bucket, and rank within it (from 1)."""
        if not 1 <= percent <= 100:
            raise ValueError(f"percent: {percent}, must be 1..100")
        left = -(-self.total * percent // 100)
        if left == 0:
            return None
        for bucket, count in enumerate(self.counts):
            if left <= count:
                return bucket, left
            left -= count
        raise AssertionError("the counts sum to the total")
