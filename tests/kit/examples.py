"""How many examples Hypothesis tries: few and the same ones in `make test`, many new ones in `make test-all`.

    @examples(60)
    @given(...)

`make test` must not fail by chance: `make test-all` looks for what new examples find, and prints how to see it again.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

QUICK, THOROUGH = "quick", "thorough"
THOROUGH_FACTOR = 5
_SLOW = [HealthCheck.too_slow]


def register_profiles() -> None:
    """Make both profiles known and take the quick one; `--hypothesis-profile` is read later, and wins."""
    settings.register_profile(QUICK, deadline=None, derandomize=True, suppress_health_check=_SLOW)
    settings.register_profile(
        THOROUGH, deadline=None, max_examples=100 * THOROUGH_FACTOR, print_blob=True, suppress_health_check=_SLOW
    )
    settings.load_profile(QUICK)


def examples(count: int, **options: Any) -> settings:
    """Return settings for this many examples, or several times as many where tests are thorough."""
    factor = THOROUGH_FACTOR if settings.get_current_profile_name() == THOROUGH else 1
    return settings(max_examples=count * factor, **options)
