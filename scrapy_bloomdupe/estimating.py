"""How many were there, if each was looked at with a known chance, and so many were found?

Pure arithmetic for the audit: T keys were hit, each was sampled with the chance s independently of the
others, x of them are in the sample; how many are not?

x is binomial with T tries, so x (1 - s) / s is an unbiased estimate of the T - x others. The bounds invert
the binomial test, as C. J. Clopper and E. S. Pearson do for the chance ("The Use of Confidence or Fiducial
Limits Illustrated in the Case of the Binomial", Biometrika 26(4), 1934), here for T: for every T and s they
hold T with the promised probability at the least, and with it T - x, since x is known. For small s they are
those of a Poisson count (F. Garwood, "Fiducial Limits for the Poisson Distribution", Biometrika 28, 1936),
divided by s; for larger ones those would be too narrow, since they are of an expected number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """What a sample says of those outside of it.

    Attributes:
        found: x, in the sample.
        others: unbiased estimate of those that are not.
        low, high: bounds of their number; both are possible values.
    """

    found: int
    others: float
    low: int
    high: int


def estimate(found: int, share: float, confidence: float = 0.95) -> Estimate:
    """Return how many are not in a sample in which *found* are.

    Holds for numbers up to some 10^10 (beyond, the logarithm of the gamma function has too few digits) and
    takes some sqrt(found) steps a bound.

    Args:
        found: x, 0 or more.
        share: s, 0 < share <= 1.
        confidence: with this probability at least the bounds hold, 0 < confidence < 1; half of the rest is
            on either side.
    """
    if share >= 1:
        return Estimate(found, 0.0, 0, 0)
    rare = (1 - confidence) / 2
    few, many = max(1, found), math.ceil((found + 1) / share)
    while at_most(found, many, share) > rare:
        few, many = many, 2 * many
    # The most tries under which no more than x are not too rare ...
    high = _first(few, many, lambda tries: at_most(found, tries, share) <= rare) - 1
    # ... and the fewest under which no fewer are.
    low = 0
    if found:
        most = math.ceil(found / share)
        low = _first(found, most, lambda tries: at_least(found, tries, share) > rare)
    return Estimate(found, found * (1 - share) / share, max(0, low - found), max(0, high - found))


def at_most(found: int, tries: int, share: float) -> float:
    """Return P(X <= found) of a binomial X, exact below its mean and 1 from there on: no small tail."""
    if found >= tries * share:
        return 1.0
    # From the largest term down; all are positive, so that nothing cancels.
    term = total = _probability(found, tries, share)
    odds = (1 - share) / share
    for k in range(found, 0, -1):
        term *= k * odds / (tries - k + 1)
        total += term
        if term <= 1e-17 * total:
            break
    return total


def at_least(found: int, tries: int, share: float) -> float:
    """Return P(X >= found) of a binomial X, exact above its mean and 1 up to there."""
    if found <= tries * share:
        return 1.0
    term = total = _probability(found, tries, share)
    odds = share / (1 - share)
    for k in range(found, tries):
        term *= (tries - k) * odds / (k + 1)
        total += term
        if term <= 1e-17 * total:
            break
    return total


def _probability(found: int, tries: int, share: float) -> float:
    if found > tries:
        return 0.0
    ways = math.lgamma(tries + 1) - math.lgamma(found + 1) - math.lgamma(tries - found + 1)
    return math.exp(ways + found * math.log(share) + (tries - found) * math.log1p(-share))


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest number from *low* to *high* for which *holds*, as it does for all after it."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
