"""Mutual TLS: both sides show a certificate of the same authority, which may be rotated under a running server."""

from __future__ import annotations

import asyncio
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sawhorse_runtime.errors import SettingsError, UnavailableError
from sawhorse_runtime.health import Readiness
from sawhorse_runtime.rpc import Tls, call, channel, grpc_server, tls_from
from sawhorse_runtime.settings import CommonSettings


class Authority:
    """A certificate authority of the test; `issue` writes the three files of one peer."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._cert = self._sign(self._name, self._key.public_key(), authority=True)

    def issue(self, folder: Path, ca: Authority | None = None) -> Tls:
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._sign(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "peer")]), key.public_key(), authority=False
        )
        folder.mkdir(exist_ok=True)
        (folder / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        (folder / "cert").write_bytes(cert.public_bytes(Encoding.PEM))
        (folder / "ca").write_bytes((ca or self)._cert.public_bytes(Encoding.PEM))
        return Tls(str(folder / "cert"), str(folder / "key"), str(folder / "ca"))

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool) -> x509.Certificate:
        now = datetime.now(UTC)
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        )
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )


async def check(port: int, tls: Tls | None) -> int:
    """The health of the server, asked over a fresh connection."""
    async with channel(f"127.0.0.1:{port}", tls=tls) as made:
        answer = await call(health_pb2_grpc.HealthStub(made).Check, health_pb2.HealthCheckRequest(), timeout=3)
        status: int = answer.status
        return status


async def test_peers_of_one_authority_talk_and_others_are_kept_out(tmp_path: Path) -> None:
    ours, theirs = Authority("ours"), Authority("theirs")
    server, client = ours.issue(tmp_path / "server"), ours.issue(tmp_path / "client")
    stranger = theirs.issue(tmp_path / "stranger", ca=ours)

    async with asyncio.timeout(30), grpc_server("127.0.0.1:0", servicers={}, readiness=Readiness(), tls=server) as port:
        status = await check(port, client)
        for outsider in (stranger, None):
            with pytest.raises(UnavailableError):
                await check(port, outsider)

    assert status == health_pb2.HealthCheckResponse.SERVING


async def test_a_server_takes_rotated_certificates_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    server = old.issue(tmp_path / "server")
    client = new.issue(tmp_path / "client")

    async with asyncio.timeout(30), grpc_server("127.0.0.1:0", servicers={}, readiness=Readiness(), tls=server) as port:
        with pytest.raises(UnavailableError):
            await check(port, client)
        new.issue(tmp_path / "server")
        status = await check(port, client)

    assert status == health_pb2.HealthCheckResponse.SERVING


async def test_tls_files_that_cannot_be_read_are_all_named(tmp_path: Path) -> None:
    missing = Tls(str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c"))

    with pytest.raises(SettingsError) as caught:
        async with grpc_server("127.0.0.1:0", servicers={}, readiness=Readiness(), tls=missing):
            pass

    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "--grpc-tls-key-file",
        "--grpc-tls-cert-file",
        "--grpc-tls-ca-file",
    ]


@pytest.mark.parametrize(("file", "flag"), [("cert", "cert"), ("key", "cert"), ("ca", "ca")])
async def test_files_that_hold_no_certificate_are_a_settings_problem(tmp_path: Path, file: str, flag: str) -> None:
    tls = Authority("ours").issue(tmp_path / "server")
    (tmp_path / "server" / file).write_text("not a certificate")

    with pytest.raises(SettingsError, match=f"--grpc-tls-{flag}-file: .*; give"):
        async with grpc_server("127.0.0.1:0", servicers={}, readiness=Readiness(), tls=tls):
            pass


def test_settings_turn_tls_on_by_naming_the_files() -> None:
    off = CommonSettings(cluster_name="c")
    on = CommonSettings(cluster_name="c", grpc_tls_cert_file="a", grpc_tls_key_file="b", grpc_tls_ca_file="d")

    assert tls_from(off) is None
    assert tls_from(on) == Tls(cert_file="a", key_file="b", ca_file="d")
