"""`python -m tests.interop.members LIBRARY BOOTSTRAP GROUP TOPIC SESSION_MS`: a member that can be killed."""

from __future__ import annotations

import sys
import time

from tests.interop.members.all import member
from tests.interop.members.member import Joining

if __name__ == "__main__":
    library, bootstrap, group, topic, session_timeout_ms = sys.argv[1:]
    with member(library, bootstrap, Joining(group, (topic,), session_timeout_ms=int(session_timeout_ms))) as joined:
        while True:
            joined.check()
            time.sleep(0.05)
