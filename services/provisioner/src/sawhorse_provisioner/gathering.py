"""Nodes that come at about the same time are opened together: they gather, one of them does the work for all, and
then all leave at the same moment.

It knows nothing of hints. The waits are short and have a bound; who comes alone does not wait at all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

_LOOK = 0.1
_IDLE = 4.0  # seconds without a new node after which nobody is waited for
_LONGEST = 10.0  # and after this long at most
_LEAVING = 1.0  # seconds that the first of a group waits for the others before it leaves
_MOST = 30  # nodes: each that waits keeps a worker of the queue of claims busy


class _Group:
    def __init__(self, now: float) -> None:
        self.members: dict[str, str] = {}
        self.first = now
        self.last = now
        self.done = asyncio.Event()
        self.inside: set[str] = set()  # who has not said that it leaves
        self.left = False
        self.turns: dict[str, asyncio.Future[None]] = {}  # of those who wait for the others


class Gathering:
    """See the module.

    Args:
        others_come: whether there is anybody to wait for, besides those who are here.
        work: done once for all who have gathered, by claim; tells in which order they are to leave.
        finish: done when they are about to leave, by claim.
    """

    def __init__(
        self,
        others_come: Callable[[Collection[str]], bool],
        work: Callable[[Mapping[str, str]], Awaitable[Sequence[str]]],
        finish: Callable[[Mapping[str, str]], Awaitable[None]],
    ) -> None:
        self._others_come = others_come
        self._work = work
        self._finish = finish
        self._group: _Group | None = None
        self._one_at_a_time = asyncio.Lock()
        self._inside: dict[str, _Group] = {}

    async def join(self, claim: str, node: str) -> None:
        """Wait with the others until the work has been done; the first one to come does it.

        Raises:
            Exception: of the work, for who does it; the others go on.
        """
        now = asyncio.get_running_loop().time()
        group = self._group
        if group is None:
            group = self._group = _Group(now)
            group.members[claim] = node
            await self._lead(group)
            return
        group.members[claim] = node
        group.last = now
        await group.done.wait()

    async def _lead(self, group: _Group) -> None:
        try:
            while not self._is_complete(group):  # noqa: ASYNC110  also who has left on the way counts: no event tells
                await asyncio.sleep(_LOOK)
            async with self._one_at_a_time:  # who comes until it is our turn is in it, too
                self._close(group)
                group.inside = set(group.members)
                self._inside |= dict.fromkeys(group.members, group)
                order = await self._work(group.members)
                group.members = {claim: group.members[claim] for claim in order}
        finally:
            self._close(group)
            group.done.set()

    async def leave(self, claim: str) -> None:
        """Wait until all who have gathered with this one want to leave; at once for who is not in a group."""
        group = self._inside.pop(claim, None)
        if group is None or group.left:
            return
        loop = asyncio.get_running_loop()
        turn = group.turns[claim] = loop.create_future()
        group.inside.discard(claim)
        try:
            async with asyncio.timeout(_LEAVING):
                if not group.inside:
                    await self._finish(group.members)
                    loop.call_soon(self._open, group)  # when this one waits for its turn like the others
                await turn
        except TimeoutError:
            self._open(group)

    def _open(self, group: _Group) -> None:
        """Let all who wait leave, one right after the other; who comes later goes without waiting."""
        group.left = True
        for claim in group.members:
            if claim in group.turns and not group.turns[claim].done():
                group.turns[claim].set_result(None)
        for claim in group.inside:
            if self._inside.get(claim) is group:
                del self._inside[claim]

    def _is_complete(self, group: _Group) -> bool:
        now = asyncio.get_running_loop().time()
        return (
            len(group.members) >= _MOST
            or now - group.first >= _LONGEST
            or now - group.last >= _IDLE
            or not self._others_come(group.members)
        )

    def _close(self, group: _Group) -> None:
        if self._group is group:
            self._group = None
