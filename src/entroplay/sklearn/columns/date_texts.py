"""Dates written as texts: the order of day, month and year is learned from a whole column."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np

ORDERS = {"ymd": "year-month-day", "dmy": "day-month-year", "mdy": "month-day-year"}
"""Orders of the parts of a date, in the words of a note."""
PATTERN = re.compile(
    r"(\d{1,4})([-/.])(\d{1,2})(?:\2(\d{1,4}))?"
    r"(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?"
    r"(?: ?(am|pm))?(?: ?(z|utc|[+-]\d{2}:?\d{2}))?",
    re.IGNORECASE,
)
"""Three numbers, perhaps with a time of day and an offset from UTC; 2019-05 is a month."""
PIVOT = 70
"""Years of two digits are 1970 to 1999 from here on, and 2000 to 2069 below."""
EPOCH = datetime(1970, 1, 1)
DAY = 86400.0
"""Number of seconds in a day."""


def order_of(texts: set[str]) -> str | None:
    """The order in which all these texts are dates, or None if there is none.

    A column whose days are all below 13 fits two orders: dots are then read as day-month-year, as
    in most of Europe, other signs as month-day-year.

    >>> order_of({"03/04/2019", "25/12/2019"}), order_of({"03/04/2019"}), order_of({"3.5"})
    ('dmy', 'mdy', None)
    """
    if not texts:
        return None
    dots = "." in next(iter(texts))
    for order in ("ymd", *(("dmy", "mdy") if dots else ("mdy", "dmy"))):
        if all(day_of(text, order) is not None for text in texts):
            return order
    return None


@lru_cache(maxsize=4096)  # a column repeats its dates
def day_of(text: str, order: str) -> float | None:
    """The time of a text in days since 1970, or None if it is no date in this order.

    >>> day_of("1970-01-02 12:00", "ymd"), day_of("31.02.1970", "dmy")
    (1.5, None)
    """
    match = PATTERN.fullmatch(text.strip())
    if match is None:
        return None
    parts = dict(zip(order, (match[1], match[3], match[4]), strict=True))
    if parts.get("d") is None:
        parts["d"] = "1"  # a month alone
    if parts["y"] is None or len(parts["y"]) not in ((4,) if order == "ymd" else (2, 4)):
        return None
    year, month, day = (int(parts[part]) for part in "ymd")
    if len(parts["y"]) == 2:
        year += 1900 if year >= PIVOT else 2000
    hour, minute, second = (int(match[i] or 0) for i in (5, 6, 7))
    if match[9]:
        hour = hour % 12 + (12 if match[9].lower() == "pm" else 0)
    try:
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    whole = (moment - EPOCH).total_seconds() + float(f"0.{match[8] or 0}")
    return (whole - _offset(match[10])) / DAY


def _offset(zone: str | None) -> float:
    """Seconds by which a zone such as "+02:00" is ahead of UTC."""
    if zone is None or zone.lower() in ("z", "utc"):
        return 0.0
    digits = zone[1:].replace(":", "")
    return (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * (-1.0 if zone[0] == "-" else 1.0)


def days_of_moments(moments: np.ndarray) -> np.ndarray:
    """Times of NumPy's type datetime64 in days since 1970; missing ones become NaN."""
    micros = moments.astype("datetime64[us]")
    return np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / (1e6 * DAY))


def calendar(days: np.ndarray) -> dict[str, np.ndarray]:
    """Year, month (1 to 12), weekday (Monday is 0) and hour of times in days since 1970.

    >>> {name: values.tolist() for name, values in calendar(np.array([0.25])).items()}
    {'year': [1970.0], 'month': [1.0], 'weekday': [3.0], 'hour': [6.0]}
    """
    dates = np.floor(days).astype(np.int64).astype("datetime64[D]")
    months = dates.astype("datetime64[M]").astype(np.int64)
    return {
        "year": (1970 + np.floor_divide(months, 12)).astype(np.float64),
        "month": (1 + months % 12).astype(np.float64),
        "weekday": (np.floor(days) + 3) % 7,  # the first of January 1970 was a Thursday
        "hour": np.round((days - np.floor(days)) * 24, 6),
    }


def written(day: float) -> str:
    """A time in days since 1970 as a date.

    >>> written(1.5)
    '1970-01-02'
    """
    return datetime.fromtimestamp(round(day * DAY), UTC).strftime("%Y-%m-%d")
