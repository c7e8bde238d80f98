"""Makes a loopback server reachable under another address: bytes in, bytes out.

The sandbox's servers listen on loopback only, which is right everywhere but between the containers of one network.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK = 65_536
_CONNECT_SECONDS = 5.0


@asynccontextmanager
async def relay(listen: tuple[str, int], target: tuple[str, int]) -> AsyncIterator[int]:
    """Forward connections while the block runs; yields the port that is listened on (0 lets the system pick).

    Raises:
        OSError: the port cannot be listened on.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                there, back = await asyncio.open_connection(*target)
        except (OSError, TimeoutError):
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, back))
                group.create_task(_pump(there, writer))
        finally:
            writer.close()
            back.close()

    server = await asyncio.start_server(serve, *listen)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, and pass the end on."""
    with suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    if writer.can_write_eof() and not writer.is_closing():
        with suppress(OSError):
            writer.write_eof()
