"""A process that opens a cache several times: one JSON line an open. See ``opening.py``."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from kvstrata import CacheManager
from kvstrata.eventstore.log import EventLog

from .figures import timed
from .opening import SavedLog
from .traffic import chat_config, chat_layout


def main() -> None:
    root, shared_memory = Path(sys.argv[1]), Path(sys.argv[2])
    num_pages, again = int(sys.argv[3]), int(sys.argv[4])
    saved = SavedLog(root, shared_memory)
    layout, config = chat_layout(), chat_config(num_pages, shared_memory)
    spent_s = 0.0
    open_log = EventLog.open

    def open_timed(*arguments: Any, **named: Any) -> EventLog:
        nonlocal spent_s
        start = time.perf_counter()
        log = open_log(*arguments, **named)
        spent_s = time.perf_counter() - start
        return log

    EventLog.open = open_timed  # type: ignore[method-assign]
    for _ in range(1 + again):
        saved.put_back()
        cache, whole = timed(lambda: CacheManager.open(layout, config, saved.directory))
        assert cache.recovery is not None
        assert cache.log is not None
        report = cache.recovery.log
        parts = {"event_log_wall_s": spent_s, "replay_wall_s": report.seconds}
        print(json.dumps({**whole, **parts, "events_replayed": report.events_replayed}))
        cache.log.close(clean=False)


if __name__ == "__main__":
    main()
