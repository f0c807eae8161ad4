"""The Retry-After header: seconds, or a date."""

from email.utils import parsedate_to_datetime


def retry_after_s(value: bytes, now_s: float) -> float | None:
    """Seconds to wait from `now_s` (Unix time) as RFC 9110 says; None without a header or with a strange one."""
    text = value.decode("latin-1").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - now_s, 0.0)
    except (ValueError, OverflowError):
        return None
