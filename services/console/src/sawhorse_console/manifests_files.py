"""Files and folders to Kubernetes objects as plain JSON: YAML (several documents), JSON, Lists; nothing is judged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from sawhorse_model.manifests import Raw

SUFFIXES = (".yaml", ".yml", ".json")
DEEPEST = 64  # levels of nesting; no real manifest has a fraction of it

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the input: where, what, what to do."""

    file: str
    object: str
    field: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.object, self.field, self.text) if part)


class UnreadableError(Exception):
    """The input cannot be used. `problems` has one line each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file."""

    file: str
    raw: Raw
    kind: str
    api_version: str

    @property
    def label(self) -> str:
        """How a person finds it: kind and name."""
        meta = self.raw.get("metadata")
        name = meta.get("name") or meta.get("generateName") if isinstance(meta, Mapping) else None
        space = meta.get("namespace") if isinstance(meta, Mapping) else None
        return f"{self.kind} {space}/{name}" if space else f"{self.kind} {name or '(no name)'}"


def read_documents(paths: Sequence[Path], problems: list[Problem]) -> list[Document]:
    """All objects of files and folders (searched below, by name order); what cannot be read is added to `problems`."""
    found: list[Document] = []
    for path in paths:
        for file in _files(path, problems):
            try:
                data = file.read_bytes()
            except OSError as error:
                problems.append(Problem(str(file), "", "", f"cannot be read: {error.strerror or error}"))
                continue
            found += _objects(str(file), data, problems)
    return found


def _files(path: Path, problems: list[Problem]) -> list[Path]:
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
        if not inside:
            problems.append(Problem(str(path), "", "", f"the folder has no {', '.join(SUFFIXES)} files"))
        return inside
    if not path.exists():
        problems.append(Problem(str(path), "", "", "no such file or folder"))
        return []
    return [path]


def _objects(file: str, data: bytes, problems: list[Problem]) -> list[Document]:
    try:
        values = list(_decode(file, data))
    except UnreadableError as error:
        problems.extend(error.problems)
        return []
    found: list[Document] = []
    for value in values:
        if value is not None:
            _collect(file, value, "", problems, found)
    return found


def _decode(file: str, data: bytes) -> Iterator[Any]:
    """Decode JSON where it is JSON, else YAML; JSON is tens of times faster to read."""
    if file.lower().endswith(".json") or data.lstrip()[:1] in (b"{", b"["):
        try:
            yield msgspec.json.decode(data)
            return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if file.lower().endswith(".json"):
                raise UnreadableError([Problem(file, "", "", f"is not JSON: {error}")]) from error
    try:
        for value in yaml.load_all(data.decode("utf-8"), Loader=_Loader):
            _check_keys(file, value, "", 0)
            yield value
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise UnreadableError([Problem(file, "", "", f"is not YAML: {error.problem}{where}")]) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        text = str(error).replace("\n", " ")
        raise UnreadableError([Problem(file, "", "", f"is not YAML: {text}")]) from error
    except RecursionError as error:
        raise UnreadableError([Problem(file, "", "", "is nested too deeply")]) from error


def _check_keys(file: str, value: Any, path: str, depth: int) -> None:
    """YAML allows keys that are no texts, and values that contain themselves; JSON does not."""
    if depth > DEEPEST:
        raise UnreadableError([Problem(file, "", path[:80], "is nested too deeply")])
    if isinstance(value, Mapping):
        for key, below in value.items():
            if not isinstance(key, str):
                text = f"the key {key!r} is not a text; put it in quotes"
                raise UnreadableError([Problem(file, "", path.lstrip("."), text)])
            if isinstance(below, dict | list):
                _check_keys(file, below, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            if isinstance(below, dict | list):
                _check_keys(file, below, f"{path}[{index}]", depth + 1)


def _collect(file: str, value: Any, kind: str, problems: list[Problem], found: list[Document]) -> None:
    """Add an object, or the items of a List. `kind` is that of a typed List's items."""
    if not isinstance(value, Mapping):
        problems.append(Problem(file, "", "", f"has {value!r:.40} where a Kubernetes object is expected"))
        return
    own = value.get("kind") or kind
    version = value.get("apiVersion") or ""
    if not isinstance(own, str) or not own:
        problems.append(Problem(file, "", "kind", "is missing; a Kubernetes object names its kind"))
        return
    if own.endswith("List") and "items" in value:
        items = value["items"]
        if not isinstance(items, list):
            problems.append(Problem(file, own, "items", "must be a list"))
            return
        for item in items:
            _collect(file, item, own.removesuffix("List"), problems, found)
        return
    found.append(Document(file, value, own, version if isinstance(version, str) else ""))
