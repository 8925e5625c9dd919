"""The files of the page. They are read once, and served under a name that changes with their content."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from ottla.console.problems import Problem
from ottla.console.settings import ConsoleSettings
from ottla.console.web.protection import HEADERS

STATIC: Final = Path(__file__).parent.parent / "static"
_INDEX: Final = "index.html"
# Replaced in index.html: the path of the console, and the folder of the files beside it.
_BASE: Final = b"__BASE__"
_ASSETS: Final = b"__ASSETS__"
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

    async def page(self, request: web.Request) -> web.Response:
        """Answer every other path with the page, if a browser asks for a page."""
        is_page = "text/html" in request.headers.get("Accept", "") or request.path in ("/", self._settings.base_path)
        if request.path.startswith(("/api/", "/static/")) or not is_page:
            raise Problem(404, "There is no such path", advice="/api/v1/openapi.json lists the routes.")
        if self._is_live:
            self._files = _read(self._folder)
        index = self._files.get(_INDEX)
        if index is None:
            raise Problem(404, "This installation has no page")
        content = index.content.replace(_BASE, self._settings.base_path.encode())
        content = content.replace(_ASSETS, b"static/" + self.version.encode())
        return _answer(request, _File(content, None, index.content_type), "no-cache")


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
