"""Settings: one frozen dataclass per service, filled from flags, then the environment, then defaults.

    @dataclass(frozen=True, kw_only=True)
    class Settings(CommonSettings):
        batch_idle_duration: timedelta = option(duration, "1s", "Close a batch after this long idle.")

    settings = load_or_exit(Settings, prog="sawhorse-provisioner", description="...")

A field is its flag and its variable: `batch_idle_duration` is `--batch-idle-duration` and `BATCH_IDLE_DURATION`.
Everything that is wrong is listed at once. `--help` and docs/configuration.md are printed from the same fields.
The machinery is in `options`, the parsers in `parsers`; this module adds what all services share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from sawhorse_runtime.errors import SettingsError
from sawhorse_runtime.options import (
    REQUIRED,
    Option,
    SettingsBase,
    exit_with,
    load_or_exit,
    option,
    settings_help,
    settings_table,
)
from sawhorse_runtime.parsers import (
    address,
    at_least,
    boolean,
    choice,
    duration,
    integer,
    is_loopback,
    number,
    optional,
    path,
    port,
    redis_url,
    split_address,
    text,
    url,
    words,
)

__all__ = [
    "REQUIRED",
    "CommonSettings",
    "Option",
    "SettingsBase",
    "address",
    "at_least",
    "boolean",
    "choice",
    "duration",
    "exit_with",
    "integer",
    "is_loopback",
    "load_or_exit",
    "number",
    "option",
    "optional",
    "path",
    "port",
    "redis_url",
    "settings_help",
    "settings_table",
    "split_address",
    "text",
    "url",
    "words",
]

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, kw_only=True)
class CommonSettings(SettingsBase):
    """What every service can be told. A service inherits it and may give a field another default."""

    cluster_name: str = option(text, REQUIRED, "Name of the cluster; prefix of the Redis keys, tag of the instances.")
    log_level: str = option(choice(*LOG_LEVELS), "info", "Least severe log line that is printed.")
    bind_address: str = option(text, "0.0.0.0", "Address that the metrics and health ports listen on.")
    metrics_port: int = option(port, "8080", "Port of /metrics; 0 lets the system pick.")
    health_probe_port: int = option(port, "8081", "Port of /healthz and /readyz; 0 lets the system pick.")
    redis_url: str = option(
        redis_url, "redis://127.0.0.1:6379/0", "Where Redis is, without a password: redis://, rediss:// or unix://."
    )
    redis_url_file: str = option(path, "", "File that holds the Redis URL instead; it may hold a password.")
    redis_password_file: str = option(path, "", "File that holds the Redis password.")
    grpc_address: str = option(
        optional(address), "127.0.0.1:8090", "host:port that the gRPC API listens on; port 0 lets the system pick."
    )
    grpc_tls_cert_file: str = option(path, "", "PEM certificate of this service; turns on mutual TLS for gRPC.")
    grpc_tls_key_file: str = option(path, "", "PEM private key of that certificate.")
    grpc_tls_ca_file: str = option(path, "", "PEM certificates of the authority that signs every peer's certificate.")
    insecure_grpc: bool = option(boolean, "false", "Allow gRPC without TLS beyond this machine, on a private network.")
    drain_timeout: timedelta = option(
        duration, "20s", "How long work in flight may go on after SIGTERM; less than the pod's grace period."
    )
    ready_file: str = option(
        path, "", "File to write once ready: JSON with pid and the ports of grpc, metrics and health."
    )

    def problems(self) -> Iterable[str]:
        yield from super().problems()
        tls = {
            "--grpc-tls-cert-file": self.grpc_tls_cert_file,
            "--grpc-tls-key-file": self.grpc_tls_key_file,
            "--grpc-tls-ca-file": self.grpc_tls_ca_file,
        }
        if any(tls.values()) and not all(tls.values()):
            missing = " and ".join(flag for flag, file in tls.items() if not file)
            yield f"{missing}: mutual TLS needs certificate, key and authority; set all three or none"
        if self.grpc_address and not any(tls.values()) and not self.insecure_grpc:
            host, _ = split_address(self.grpc_address)
            if not is_loopback(host):
                yield (
                    f"--grpc-address: {self.grpc_address} can be reached from other machines without TLS; "
                    "set the --grpc-tls files, listen on 127.0.0.1, or allow it with --insecure-grpc"
                )
        if self.metrics_port and self.metrics_port == self.health_probe_port:
            yield f"--health-probe-port: {self.metrics_port} is the metrics port too; choose another"

    def read_redis_url(self) -> str:
        """The Redis URL to connect with, password included, from the files that the settings name. Never log it.

        Raises:
            SettingsError: a file cannot be read or holds no such thing.
        """
        value = self.redis_url
        if self.redis_url_file:
            value = _read_secret("--redis-url-file", self.redis_url_file)
            if urlsplit(value).scheme not in ("redis", "rediss", "unix"):
                raise SettingsError(
                    f"--redis-url-file: {self.redis_url_file} holds no Redis URL; write redis://host:6379/0 in it"
                )
        if not self.redis_password_file:
            return value
        password = quote(_read_secret("--redis-password-file", self.redis_password_file), safe="")
        parts = urlsplit(value)
        userinfo, _, host = parts.netloc.rpartition("@")
        user = userinfo.partition(":")[0]
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{host}"))


def _read_secret(flag: str, file: str) -> str:
    try:
        value = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as err:
        why = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"{flag}: {file} cannot be read ({why}); check the path and its permissions") from err
    if not value:
        raise SettingsError(f"{flag}: {file} is empty; write the secret in it")
    return value
