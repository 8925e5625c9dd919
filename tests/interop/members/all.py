"""Members of all client libraries, ours among them, by the library's name."""

from __future__ import annotations

from tests.interop.members.aio import AioMember
from tests.interop.members.confluent import ConfluentMember
from tests.interop.members.member import Joining, Member
from tests.interop.members.own import OwnMember
from tests.interop.members.python import PythonMember

LIBRARIES: dict[str, type[Member]] = {kind.name: kind for kind in (ConfluentMember, AioMember, PythonMember, OwnMember)}


def member(library: str, bootstrap: str, how: Joining) -> Member:
    """Have a client of a library join a group; it is under way when this returns."""
    return LIBRARIES[library](bootstrap, how)
