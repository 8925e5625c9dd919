"""The page at `/` of the HTTP port, for people who find the port and wonder what it is."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

# The page loads nothing and runs nothing.
PAGE_POLICY: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
_ABOUT: Final = {
    "/health/live": "whether the process answers",
    "/health/ready": "whether the broker serves as a member of its cluster",
    "/metrics": "for Prometheus, under the names of Kafka's JMX exporter",
}


def front_page(pages: Iterable[str]) -> bytes:
    """Return the page as HTML. It says nothing that only some may know."""
    about = _ABOUT | {f"/{name}": "JSON" for name in pages}
    rows = "\n".join(
        f'<li><a href="{escape(path)}">{escape(path)}</a>: {escape(text)}</li>' for path, text in about.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Ottla broker</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}</style></head>
<body><h1>Ottla broker</h1>
<p>This is the HTTP port of a message broker, which speaks the Kafka protocol on another port.</p>
<ul>
{rows}
</ul>
<p>The console shows and runs the whole cluster: <code>ottla console</code> starts it, <code>ottla up</code> runs one at
<a href="http://localhost:8080">http://localhost:8080</a>.</p>
</body></html>
""".encode()
