"""Settings: precedence, every problem at once, help, and the parsers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.settings import (
    REQUIRED,
    CommonSettings,
    SettingsBase,
    address,
    at_least,
    boolean,
    choice,
    duration,
    integer,
    load_or_exit,
    number,
    option,
    optional,
    redis_url,
    settings_help,
    settings_table,
    text,
    words,
)


@dataclass(frozen=True, kw_only=True)
class Batching(SettingsBase):
    """A service's settings, small."""

    pool: str = option(text, REQUIRED, "Which pool.")
    idle: timedelta = option(duration, "1s", "Close a batch after this long idle.")
    longest: timedelta = option(duration, "10s", "Close a batch after this long anyway.")
    dry_run: bool = option(boolean, "false", "Only say what would be done.")
    policy: str = option(text, "Respect", "What to do with preferences.", choices=("Respect", "Ignore"))
    token: str = option(choice("abc", "s3cret"), "abc", "A secret.", secret=True)

    def problems(self) -> Iterable[str]:
        yield from super().problems()
        if self.idle > self.longest:
            yield "--idle: it is longer than --longest; make it shorter"


def load(*argv: str, **environ: str) -> Batching:
    return Batching.load(argv, environ, prog="batching", description="Batches things.")


def problems_of(*argv: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(*argv, **environ)
    return caught.value.problems


def test_a_flag_beats_the_environment_and_the_environment_beats_the_default() -> None:
    settings = load("--pool", "from-flag", POOL="from-env", IDLE="2s")

    assert (settings.pool, settings.idle, settings.longest) == (
        "from-flag",
        timedelta(seconds=2),
        timedelta(seconds=10),
    )


def test_a_bad_variable_does_not_matter_when_the_flag_is_given() -> None:
    assert load("--pool=a", "--idle=3s", IDLE="soon").idle == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--dry-run"], True),
        (["--dry-run", "true"], True),
        (["--dry-run", "false"], False),
        (["--dry-run=false"], False),
        (["--dry-run", "--idle", "1s"], True),
        ([], False),
    ],
)
def test_a_boolean_flag_may_stand_bare_or_carry_its_value(argv: list[str], expected: bool) -> None:
    assert load("--pool", "a", *argv).dry_run is expected


def test_the_last_of_two_equal_flags_wins() -> None:
    assert load("--pool", "a", "--pool=b").pool == "b"


def test_every_problem_is_listed_at_once_with_where_and_what_to_do() -> None:
    problems = problems_of("--idel", "2s", "--longest", "soon", "stray", "--policy", "Maybe", DRY_RUN="yes")

    assert sorted(problems) == sorted(
        [
            "--idel: there is no such setting; did you mean --idle?",
            "stray: it belongs to no flag; write --setting value or --setting=value",
            "--pool: it is required and not set; set it, or POOL in the environment",
            "--longest: 'soon' is not a duration; write it like 1h30m, 10s or 500ms",
            "--policy: 'Maybe' is not one of the allowed words; write Respect or Ignore",
            "DRY_RUN (environment): 'yes' is neither true nor false; write true or false",
        ]
    )


def test_a_flag_without_its_value_is_one_problem() -> None:
    assert problems_of("--pool") == ("--pool: its value is missing; write --pool TEXT",)


def test_a_required_setting_may_not_be_empty() -> None:
    assert problems_of(POOL="") == ("POOL (environment): the value is empty; give it one",)


def test_problems_between_fields_stop_the_start_too() -> None:
    assert problems_of("--pool", "a", "--idle", "20s") == ("--idle: it is longer than --longest; make it shorter",)


def test_a_secret_is_shown_neither_in_problems_nor_in_help_nor_in_repr() -> None:
    shown = " ".join(problems_of("--pool", "a", "--token", "hunter2"))
    shown += settings_help(Batching, prog="batching", description="Batches things.")
    shown += repr(load("--pool", "a", "--token", "s3cret"))

    assert not any(secret in shown.replace("ABC|S3CRET", "") for secret in ("hunter2", "'abc'", "s3cret'"))


def test_help_prints_every_setting_with_variable_default_and_help_and_exits_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exited:
        load("--bogus", "--help")

    shown = capsys.readouterr().out
    assert exited.value.code == 0
    assert "--idle DURATION   [IDLE]   default: 1s" in shown
    assert "Close a batch after this long idle." in shown
    assert "--pool TEXT   [POOL]   default: required" in shown
    assert "--policy Respect|Ignore   [POLICY]   default: Respect" in shown


def test_load_or_exit_prints_one_line_per_problem_to_stderr_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        load_or_exit(Batching, ["--idle", "x"], {}, prog="batching", description="Batches things.")

    lines = capsys.readouterr().err.splitlines()
    assert exited.value.code == 2
    assert [line.partition(": ")[0] for line in lines] == ["batching"] * 3
    assert lines[-1] == "batching: See batching --help."


def test_settings_are_frozen_and_can_be_built_without_a_command_line() -> None:
    settings = Batching(pool="a")

    assert settings.idle == timedelta(seconds=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.pool = "b"  # type: ignore[misc]


def test_a_bad_default_fails_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        option(duration, "1 second", "")


def test_the_table_has_a_row_per_setting_and_its_words() -> None:
    table = settings_table(Batching).splitlines()

    assert len(table) == 2 + len(dataclasses.fields(Batching))
    assert "| `--idle` | `IDLE` | `1s` | Close a batch after this long idle. |" in table
    assert "| `--pool` | `POOL` | required | Which pool. |" in table
    assert any("One of `Respect`, `Ignore`." in row for row in table)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1h30m", timedelta(minutes=90)),
        ("10s", timedelta(seconds=10)),
        ("500ms", timedelta(milliseconds=500)),
        ("1.5h", timedelta(minutes=90)),
        ("0.1s", timedelta(microseconds=100_000)),
        ("250us", timedelta(microseconds=250)),
        ("1m0.5s", timedelta(seconds=60.5)),
        ("0", timedelta(0)),
        ("0s", timedelta(0)),
    ],
)
def test_durations_read_as_go_writes_them(given: str, expected: timedelta) -> None:
    assert duration(given) == expected


@pytest.mark.parametrize(
    ("parser", "given"),
    [
        *[(duration, bad) for bad in ("", "10", "1d", "-1s", "1h 30m", "s", "1.s", "1e3s", "9999999h", "1s\n")],
        *[(boolean, bad) for bad in ("", "True", "yes", "1", " true")],
        *[(integer, bad) for bad in ("", "1.0", "0x1", "ten", "1_000", "٣")],
        *[(number, bad) for bad in ("", "nan", "inf", "1,5", "--1")],
        *[(address, bad) for bad in ("", "8080", ":8080", "host:", "host:70000", "::1:80", "[::x]:80", "a b:1")],
        *[(redis_url, bad) for bad in ("", "localhost:6379", "http://x", "redis://")],
        *[(choice("a", "b"), bad) for bad in ("", "A", "c")],
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(parser: Any, given: str) -> None:
    with pytest.raises(ValueError, match=r"; (write|give)"):
        parser(given)


def test_a_password_in_the_redis_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="--redis-password-file") as caught:
        redis_url("redis://:hunter2@host:6379/0")

    assert "hunter2" not in str(caught.value)


def test_parsers_combine() -> None:
    refresh = at_least(duration, "1m")

    assert refresh("2m") == timedelta(minutes=2)
    with pytest.raises(ValueError, match="write at least 1m"):
        refresh("59s")
    assert optional(address)("") == ""
    assert optional(address)("[::1]:80") == "[::1]:80"
    assert words(" a, b,,c ") == ("a", "b", "c")


def common(*argv: str, **environ: str) -> CommonSettings:
    return CommonSettings.load(["--cluster-name", "c", *argv], environ, prog="x", description="")


def test_common_settings_need_only_the_cluster_name() -> None:
    settings = CommonSettings.load([], {"CLUSTER_NAME": "prod"}, prog="x", description="")

    assert (settings.cluster_name, settings.log_level, settings.metrics_port, settings.health_probe_port) == (
        "prod",
        "info",
        8080,
        8081,
    )
    assert (settings.bind_address, settings.insecure_grpc, settings.drain_timeout, settings.ready_file) == (
        "0.0.0.0",
        False,
        timedelta(seconds=20),
        "",
    )


@pytest.mark.parametrize(
    ("argv", "where"),
    [
        (["--grpc-address", "0.0.0.0:8090"], "--grpc-address"),
        (["--grpc-tls-cert-file", "a", "--grpc-tls-key-file", "b"], "--grpc-tls-ca-file"),
        (["--metrics-port", "9000", "--health-probe-port", "9000"], "--health-probe-port"),
    ],
)
def test_common_settings_that_contradict_each_other_stop_the_start(argv: list[str], where: str) -> None:
    with pytest.raises(SettingsError) as caught:
        common(*argv)

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [where]


def test_plain_text_beyond_this_machine_is_possible_when_it_is_said() -> None:
    assert common("--grpc-address", "0.0.0.0:8090", "--insecure-grpc").grpc_address == "0.0.0.0:8090"


def test_the_redis_password_comes_from_its_file_and_is_quoted(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("p@ss/word\n")

    settings = common("--redis-url", "redis://user@cache:6379/1", "--redis-password-file", str(secret))

    assert settings.read_redis_url() == "redis://user:p%40ss%2Fword@cache:6379/1"


def test_a_redis_url_file_may_hold_the_password_too(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("rediss://:pw@cache:6380/0\n")

    assert common("--redis-url-file", str(file)).read_redis_url() == "rediss://:pw@cache:6380/0"


def test_a_secret_file_that_is_missing_says_which_setting_names_it(tmp_path: Path) -> None:
    settings = common("--redis-password-file", str(tmp_path / "none"))

    with pytest.raises(SettingsError, match=r"--redis-password-file: .*No such file"):
        settings.read_redis_url()
