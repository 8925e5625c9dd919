"""Names of topics: what may be one, since it becomes part of paths."""

from __future__ import annotations

import pytest

from ottla.broker.common.topic_names import check_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "x" * 249, "__consumer_offsets", "..."])
def test_good_names_pass(name: str) -> None:
    """Letters, digits, dot, underscore, hyphen; up to 249 of them."""
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0"])
def test_bad_names_are_refused(name: str) -> None:
    """Also those that would be a path or a line break."""
    with pytest.raises(KafkaError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
