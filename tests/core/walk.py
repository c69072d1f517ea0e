"""A seeded history of every case, as a program: prints what it ended in, as JSON.

The arguments are a seed, the number of actions, and names of cases (all by default).
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import kvstrata.core
from kvstrata.core.arena import arena_digest
from kvstrata.core.words import META_LAST_TIME_NS

from .actions import walk
from .cases import CASES
from .live import Live
from .pair import Pair


def digests(pair: Pair) -> dict[str, str | int]:
    """What two runs of one history share: tables and events, the time of day left out."""
    arena = pair.subject.arena.copy()
    arena[META_LAST_TIME_NS] = 0
    events = np.concatenate(pair.log)
    events[:, 1] = 0
    return {
        "tables": arena_digest(arena).hex(),
        "events": hashlib.sha256(events.tobytes()).hexdigest()[:32],
        "num_events": pair.num_events,
    }


def run(seed: int, num_actions: int, names: list[str]) -> dict[str, dict[str, str | int]]:
    found = {}
    for name in names or list(CASES):
        pair = Pair(CASES[name], Live(CASES[name]))
        walk(pair, seed, num_actions)
        found[name] = digests(pair)
    return found


if __name__ == "__main__":
    result = {
        "core": str(Path(kvstrata.core.__file__).parent),
        "cases": run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]),
    }
    print(json.dumps(result))
