"""Where the API server is and who we are: from a kubeconfig, or from the pod's service account."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from ssl import CERT_NONE, SSLContext, SSLError, create_default_context
from typing import Any

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

from sawhorse_kube.errors import KubeConfigError

_LOAD_SECONDS = 30.0  # an exec plugin may ask a cloud for a token


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API server. `headers` and `renew` read credentials again where they rotate."""

    url: str
    ssl: SSLContext | None  # None: plain http
    server_name: str | None
    proxy: str | None
    headers: Callable[[], Awaitable[dict[str, str]]]
    renew: Callable[[], Awaitable[None]]  # after the API server refused them


async def load_access(kubeconfig: Path | None) -> Access:
    """Read a kubeconfig's current context, or with None the service account that is mounted into a pod.

    Raises:
        KubeConfigError: it cannot be read or names nothing usable.
    """
    configuration = Configuration()
    if kubeconfig is None:
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped there
        except (ConfigException, OSError) as err:
            raise KubeConfigError(
                f"no kubeconfig is given and this is not a pod with a service account ({err})",
                action="Set --kubeconfig.",
            ) from err
    else:
        await _load_file(kubeconfig, configuration)

    async def headers() -> dict[str, str]:
        # The hook inside reads a mounted token again when it is a minute old.
        settings = await configuration.auth_settings()
        bearer = settings.get("BearerToken")
        return {"Authorization": bearer["value"]} if bearer and bearer["value"] else {}

    async def renew() -> None:
        if kubeconfig is not None:
            await _load_file(kubeconfig, configuration)

    return Access(
        url=str(configuration.host).rstrip("/"),
        ssl=_ssl_context(configuration),
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        headers=headers,
        renew=renew,
    )


async def _load_file(kubeconfig: Path, configuration: Any) -> None:
    try:
        async with asyncio.timeout(_LOAD_SECONDS):
            await load_kube_config(
                config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
            )
    except TimeoutError as err:
        raise KubeConfigError(f"{kubeconfig}: its credential plugin did not answer in {_LOAD_SECONDS:g} s") from err
    except Exception as err:  # yaml errors, assertions and plugin failures come out of it as they are
        raise KubeConfigError(
            f"{kubeconfig}: cannot be used ({err or type(err).__name__})",
            action="Check the file given to --kubeconfig.",
        ) from err


def _ssl_context(configuration: Any) -> SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    try:
        context = create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    except (OSError, SSLError) as err:
        raise KubeConfigError(f"certificates of the kubeconfig cannot be read ({err})") from err
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = CERT_NONE
    return context
