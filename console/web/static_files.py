"""The files of the page. They are read once, and served under a name that changes with their content."""

from __future__ import annotations

import gzip
import hashlib
import html
import mimetypes
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from ottla.console.problems import Problem
from ottla.console.settings import ConsoleSettings
from ottla.console.web.protection import HEADERS

STATIC: Final = Path(__file__).parent.parent / "static"
_INDEX: Final = "index.html"
# Replaced in index.html: the path of the console, the folder of the files beside it, links to the modules that the page
# needs, and who asks.
_BASE: Final = b"__BASE__"
_ASSETS: Final = b"__ASSETS__"
_MODULES: Final = b"__MODULES__"
_SESSION: Final = b"__SESSION__"
_APP: Final = "app.js"
_FIRST_PAGE: Final = "overview"
_IMPORT: Final = re.compile(r'\bfrom\s*"(\.{1,2}/[^"]+)"')
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_COMPRESSED: Final = (".js", ".css", ".html", ".svg", ".json", ".txt", ".mjs")
mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("text/javascript", ".mjs")


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes | None
    content_type: str


class StaticFiles:
    """The files below a folder; with `is_live`, they are read again for each request, for people who write the page."""

    def __init__(self, settings: ConsoleSettings, folder: Path = STATIC, *, is_live: bool = False) -> None:
        self._settings = settings
        self._folder = folder
        self._is_live = is_live
        self._files = _read(folder)
        self.version = _digest(self._files)

    async def asset(self, request: web.Request) -> web.Response:
        """Answer with a file; 404 if there is none of this name in this version."""
        version, name = request.match_info["version"], request.match_info["name"]
        if self._is_live:
            self._files = _read(self._folder)
        file = self._files.get(name)
        if file is None or (version != self.version and not self._is_live):
            raise Problem(404, "There is no such file")
        caching = "no-store" if self._is_live else "public, max-age=31536000, immutable"
        return _answer(request, file, caching)

    def page(self, request: web.Request, session: bytes) -> web.Response:
        """Answer every other path with the page, if a browser asks for a page; `session` is JSON for it."""
        is_page = "text/html" in request.headers.get("Accept", "") or request.path in ("/", self._settings.base_path)
        if request.path.startswith(("/api/", "/static/")) or not is_page:
            raise Problem(404, "There is no such path", advice="/api/v1/openapi.json lists the routes.")
        if self._is_live:
            self._files = _read(self._folder)
        index = self._files.get(_INDEX)
        if index is None:
            raise Problem(404, "This installation has no page")
        # A browser would find modules only one after the other, as the imports of each arrive.
        links = "".join(
            f'<link rel="modulepreload" href="{_ASSETS.decode()}/{name}">\n    '
            for name in preloaded(self._sources(), request.path)
        )
        content = index.content.replace(_MODULES, links.rstrip().encode())
        content = content.replace(_BASE, html.escape(self._settings.base_path).encode())
        content = content.replace(_ASSETS, b"static/" + self.version.encode())
        content = content.replace(_SESSION, html.escape(session.decode()).encode())
        return _answer(request, _File(content, None, index.content_type), "private, no-cache")

    def _sources(self) -> dict[str, str]:
        return {name: file.content.decode() for name, file in self._files.items() if name.endswith(".js")}


def preloaded(sources: Mapping[str, str], path: str) -> list[str]:
    """Return the modules that the view with this path needs, besides the first one."""
    pages = [f"pages/{part}.js" for part in (_FIRST_PAGE, *path.split("/"))]
    found = [_APP, next(page for page in reversed(pages) if page in sources)]
    for name in found:
        for target in _IMPORT.findall(sources[name]):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if imported not in found:
                found.append(imported)
    return found[1:]


def _answer(request: web.Request, file: _File, caching: str) -> web.Response:
    headers = {"Cache-Control": caching, "Vary": "Accept-Encoding", **HEADERS}
    body = file.content
    if file.compressed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = file.compressed
    charset = "utf-8" if file.content_type.startswith("text/") else None
    return web.Response(body=body, headers=headers, content_type=file.content_type, charset=charset)


def _read(folder: Path) -> dict[str, _File]:
    """Read all files; only what is here when the console starts can ever be served."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _FILE_BYTES_MAX:
            content = path.read_bytes()
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            compressed = gzip.compress(content, mtime=0) if path.suffix in _COMPRESSED else None
            files[path.relative_to(folder).as_posix()] = _File(content, compressed, kind)
    return files


def _digest(files: dict[str, _File]) -> str:
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(name.encode() + b"\0" + hashlib.sha256(file.content).digest())
    return digest.hexdigest()[:12]
