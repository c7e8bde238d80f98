"""The machinery of `settings`: fields made by `option`, `load`, `--help` and the table for the documentation.

It reads no files and, save in `load_or_exit`, nothing of the process. Import its names from `settings`.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, Self, TypeVar, cast

from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.parsers import boolean, choice

T = TypeVar("T")
S = TypeVar("S", bound="SettingsBase")
_KEY = "sawhorse_option"
_HIDDEN = "(not shown)"


class _Required:
    """The default of a setting that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One setting: how its text is parsed and what its help says."""

    parser: Callable[[str], Any]
    default: str | _Required
    help: str
    choices: tuple[str, ...] | None
    secret: bool  # its value and its default are never printed

    @property
    def kind(self) -> str:
        """What `--help` shows in place of the value."""
        name: str = "|".join(self.choices) if self.choices else getattr(self.parser, "__name__", "value")
        return name if "|" in name else name.upper()  # words to choose from are spelled exactly so

    @property
    def shown_default(self) -> str:
        """The default as a person reads it."""
        if isinstance(self.default, _Required):
            return "required"
        if self.secret:
            return _HIDDEN
        return self.default or '""'

    def parse(self, value: str) -> Any:
        """The value of `value`.

        Raises:
            ValueError: with "what; what to do", which does not repeat a secret.
        """
        if isinstance(self.default, _Required) and not value:
            raise ValueError("the value is empty; give it one")
        try:
            if self.choices and value not in self.choices:
                return choice(*self.choices)(value)
            return self.parser(value)
        except ValueError as err:
            if self.secret:
                # `from None`: the cause would carry the secret into a traceback.
                raise ValueError(f"the value {_HIDDEN} makes no sense; see --help") from None
            raise ValueError(str(err)) from err


def option(
    parser: Callable[[str], T],
    default: str | _Required,
    help: str,  # the word for it: callers pass it by position
    *,
    choices: Sequence[str] | None = None,
    secret: bool = False,
) -> T:
    """A field of a settings class: `idle: timedelta = option(duration, "1s", "Close a batch after this long.")`.

    Args:
        parser: text to value, raising ValueError with "what; what to do".
        default: the default as text, parsed by `parser` (so a bad default fails at import); `REQUIRED` for none.
        help: one or two sentences; goes to `--help` and docs/configuration.md.
        choices: the only texts allowed.
        secret: never print the value, in errors, help or repr.

    The declared return type is the value's, as with `dataclasses.field`, so that the class body type-checks.
    """
    made = Option(parser, default, help, tuple(choices) if choices else None, secret)
    metadata = {_KEY: made}
    if isinstance(default, _Required):
        return cast(T, dataclasses.field(metadata=metadata, repr=not secret))
    value = made.parse(default)
    if type(value).__hash__ is None:  # dataclasses refuse lists and dicts as shared defaults
        return dataclasses.field(default_factory=lambda: parser(default), metadata=metadata, repr=not secret)
    return cast(T, dataclasses.field(default=value, metadata=metadata, repr=not secret))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SettingsBase:
    """The base of settings classes: frozen dataclasses with keyword fields made by `option`."""

    def problems(self) -> Iterable[str]:
        """What is wrong between fields, one line each. Override, and yield what `super()` yields too."""
        return ()

    @classmethod
    def load(cls, argv: Sequence[str], environ: Mapping[str, str], *, prog: str, description: str) -> Self:
        """Settings from flags (without the program's name), environment and defaults, in this order.

        `--help` or `-h` prints every setting and raises SystemExit(0).

        Raises:
            SettingsError: with every problem at once.
        """
        options = _options(cls)
        if any(word in ("--help", "-h") for word in argv):
            sys.stdout.write(settings_help(cls, prog=prog, description=description))
            raise SystemExit(0)
        flags, unread, problems = _read_flags(argv, options)
        values: dict[str, Any] = {}
        for name, opt in options.items():
            if name in unread:
                continue
            if name in flags:
                where, given = _flag(name), flags[name]
            elif _env(name) in environ:
                where, given = f"{_env(name)} (environment)", environ[_env(name)]
            elif isinstance(opt.default, _Required):
                problems.append(
                    f"{_flag(name)}: it is required and not set; set it, or {_env(name)} in the environment"
                )
                continue
            else:
                continue
            try:
                values[name] = opt.parse(given)
            except ValueError as err:
                problems.append(f"{where}: {err}")
        if not problems:
            settings = cls(**values)
            problems.extend(settings.problems())
            if not problems:
                return settings
        raise SettingsError(problems, action=f"See {prog} --help.")


def load_or_exit(
    cls: type[S],
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    prog: str,
    description: str,
) -> S:
    """For `main()`: load the settings, or print each problem to stderr and exit 2.

    `argv` and `environ` are those of the process unless given.
    """
    try:
        return cls.load(
            sys.argv[1:] if argv is None else argv,
            os.environ if environ is None else environ,  # noqa: TID251  called by main() only
            prog=prog,
            description=description,
        )
    except SettingsError as err:
        exit_with(err, prog=prog)


def exit_with(err: SettingsError, *, prog: str) -> NoReturn:
    """Print the problems to stderr, one line each, and exit 2."""
    for problem in err.problems:
        sys.stderr.write(f"{prog}: {problem}\n")
    if err.action:
        sys.stderr.write(f"{prog}: {err.action}\n")
    raise SystemExit(2)


def settings_help(cls: type[SettingsBase], *, prog: str, description: str) -> str:
    """The text of `--help`: every setting with its variable, default and help."""
    lines = [f"usage: {prog} [--setting value | --setting=value]...", "", *textwrap.wrap(description, 100), ""]
    lines += ["Each setting is a flag or an environment variable; the flag wins.", ""]
    for name, opt in _options(cls).items():
        lines.append(f"  {_flag(name)} {opt.kind}   [{_env(name)}]   default: {opt.shown_default}")
        lines += textwrap.wrap(opt.help, 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
    lines += ["  --help", " " * 8 + "Print this and exit.", ""]
    return "\n".join(lines)


def settings_table(cls: type[SettingsBase]) -> str:
    """The same as a Markdown table, for docs/configuration.md."""
    rows = ["| Flag | Environment | Default | Meaning |", "|---|---|---|---|"]
    for name, opt in _options(cls).items():
        shown = opt.shown_default if isinstance(opt.default, _Required) else f"`{opt.shown_default}`"
        meaning = opt.help
        if "|" in opt.kind:
            meaning += f" One of {', '.join(f'`{word}`' for word in opt.kind.split('|'))}."
        rows.append(f"| `{_flag(name)}` | `{_env(name)}` | {_cell(shown)} | {_cell(meaning)} |")
    return "\n".join(rows) + "\n"


def _options(cls: type[SettingsBase]) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for field in dataclasses.fields(cls):
        if _KEY not in field.metadata:
            raise TypeError(f"{cls.__name__}.{field.name} is not made by option()")
        options[field.name] = field.metadata[_KEY]
    return options


def _read_flags(argv: Sequence[str], options: Mapping[str, Option]) -> tuple[dict[str, str], set[str], list[str]]:
    """The text given for each field, the last one winning; the fields whose flag has no value; the problems."""
    flags: dict[str, str] = {}
    unread: set[str] = set()
    problems: list[str] = []
    names = {_flag(name): name for name in options}
    rest = list(reversed(argv))
    while rest:
        word = rest.pop()
        if not word.startswith("--"):
            problems.append(f"{word}: it belongs to no flag; write --setting value or --setting=value")
            continue
        flag, equals, value = word.partition("=")
        following = rest[-1] if rest and not rest[-1].startswith("--") else None
        name = names.get(flag)
        if name is None:
            problems.append(f"{flag}: there is no such setting; {_did_you_mean(flag, names)}")
            if not equals and following is not None:
                rest.pop()  # its value: not a second problem
        elif equals:
            flags[name] = value
        elif options[name].parser is boolean:
            # A bare flag is true; the next word is its value only when it can be nothing else.
            flags[name] = rest.pop() if following in ("true", "false") else "true"
        elif following is not None:
            flags[name] = rest.pop()
        else:
            problems.append(f"{flag}: its value is missing; write {flag} {options[name].kind}")
            unread.add(name)  # else a required one would be listed twice
    return flags, unread, problems


def _did_you_mean(flag: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(flag, list(names), n=1)
    return f"did you mean {close[0]}?" if close else "see --help for those there are"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _env(name: str) -> str:
    return name.upper()


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
