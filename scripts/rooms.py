"""Write docs/ROOMS.md: a picture of the rooms with their imports, and every file with the first line of its docstring.

    python -m scripts.rooms > docs/ROOMS.md

Both come from the code, so that neither has to be kept by hand. The picture leaves out an import between two rooms
where a longer way through other rooms exists as well; `lint-imports` has all of them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
# These have rooms of their own; the others are one room each.
_DIVIDED = ("broker", "client")
# Folders whose files are all of one kind.
_ALIKE = {Path("protocol/messages"): "A request and its response per file; records of internal topics."}
_TOP = ("pipeline", "console", "client", "broker", "balance", "protocol")

Edges = dict[str, set[str]]


def page() -> str:
    """Return the whole page."""
    files = room_files()
    return "\n".join(
        [
            "# The rooms",
            "",
            "Made from the code by `make docs`. An arrow means: imports from.",
            "[ARCHITECTURE.md](ARCHITECTURE.md) says how data flows through them.",
            "",
            "```mermaid",
            *picture(without_detours(imports(set(files)))),
            "```",
            "",
            *(line for room in sorted(files, key=_rank) for line in _table(room, files[room])),
        ]
    )


def room_of(module: str) -> str | None:
    """Return the room of a module such as `ottla.broker.storage.log`; None for the package itself."""
    parts = module.split(".")[1:]
    if not parts or parts[0] not in _TOP:
        return None
    if parts[0] in _DIVIDED:
        return "/".join(parts[:2]) if len(parts) > 1 else None
    return parts[0]


def imports(rooms: set[str]) -> Edges:
    """Return which room imports from which."""
    graph = grimp.build_graph("ottla", exclude_type_checking_imports=False, cache_dir=None)
    edges: Edges = defaultdict(set)
    for module in graph.modules:
        importer = room_of(module)
        for imported in graph.find_modules_directly_imported_by(module):
            used = room_of(imported)
            if importer in rooms and used in rooms and importer != used:
                edges[str(importer)].add(str(used))
    return edges


def without_detours(edges: Edges) -> Edges:
    """Leave out each edge for which a path of other edges exists. There are no cycles: `lint-imports` checks that."""
    below: dict[str, set[str]] = {}

    def all_below(room: str) -> set[str]:
        if room not in below:
            below[room] = set()
            for used in edges.get(room, ()):
                below[room] |= {used} | all_below(used)
        return below[room]

    return {
        room: {used for used in direct if not any(used in all_below(other) for other in direct - {used})}
        for room, direct in edges.items()
    }


def picture(edges: Edges) -> list[str]:
    """Return the lines of a Mermaid flow chart."""
    rooms = sorted({*edges, *(used for direct in edges.values() for used in direct)}, key=_rank)
    lines = ["flowchart TD"]
    for top in _TOP:
        inside = [room for room in rooms if room.split("/")[0] == top]
        if top in _DIVIDED:
            lines += [f"  subgraph {top}", *(f"    {_node(room)}" for room in inside), "  end"]
        else:
            lines += [f"  {_node(room)}" for room in inside]
    return [*lines, *(f"  {_name(room)} --> {_name(used)}" for room in rooms for used in sorted(edges.get(room, ())))]


def room_files() -> dict[str, list[Path]]:
    """Return the modules of each room, in the order of their paths."""
    files: dict[str, list[Path]] = defaultdict(list)
    for top in _TOP:
        for path in sorted((ROOT / top).rglob("*.py")):
            relative = path.relative_to(ROOT)
            room = room_of(".".join(("ottla", *relative.with_suffix("").parts)))
            if room is not None and path.name != "__init__.py":
                files[room].append(relative)
    return files


def summary(path: Path) -> str:
    """Return the first sentence or line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    line = docstring.partition("\n\n")[0].replace("\n", " ")
    return re.sub(r"\|", r"\\|", line)


def _table(room: str, files: list[Path]) -> list[str]:
    rows = [f"| `{_short(path, room)}` | {summary(path)} |" for path in files if path.parent not in _ALIKE]
    alike = [
        f"| `{_short(folder, room)}/` | {text} |" for folder, text in _ALIKE.items() if folder.is_relative_to(room)
    ]
    return [f"## {room}", "", "| file | what is in it |", "|---|---|", *rows, *alike, ""]


def _short(path: Path, room: str) -> Path:
    return path.relative_to(room) if path.is_relative_to(room) else path


def _rank(room: str) -> tuple[int, str]:
    return _TOP.index(room.split("/", maxsplit=1)[0]), room


def _name(room: str) -> str:
    return re.sub(r"\W", "_", room).strip("_")


def _node(room: str) -> str:
    return f'{_name(room)}["{room.rpartition("/")[2]}"]'


if __name__ == "__main__":
    sys.stdout.write(page())
