"""Things to do later in the server's process: one thread, in order of their time, each under the server's lock."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Timers:
    """Runs actions when they fall due. `start` it once; `stop` drops what has not fallen due."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()  # equal times keep the order in which they were asked for
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="timers", daemon=True)

    def start(self) -> None:
        """Begin to run actions."""
        self._thread.start()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` once, `seconds` from now; at once and in the caller's thread when that is 0."""
        if seconds <= 0:
            action()
            return
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))
            self._changed.notify()

    def stop(self) -> None:
        """End the thread; waits for an action that runs, at most 5 s."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                with self._lock:
                    action()
            except Exception:
                log.exception("a timed action failed")

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._stopped:
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left)
        return None
