"""When a message that was not accepted is sent again. Pure; times in epoch milliseconds."""

FIRST_DELAY_MS = 5_000
LONGEST_DELAY_MS = 3_600_000
GIVE_UP_AFTER_MS = 24 * 3_600_000


def next_attempt(attempts: int, failed_since: int, now: int) -> int | None:
    """When to try again after `attempts` failures: the delay doubles up to an hour, the last attempt is a day after the first.
    None: no more."""
    end = failed_since + GIVE_UP_AFTER_MS
    if now >= end:
        return None
    delay = min(FIRST_DELAY_MS << min(attempts - 1, 30), LONGEST_DELAY_MS)
    return min(now + delay, end)
