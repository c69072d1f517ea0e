"""What an engine asks for, and what a match answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason, ResumeSource
from kvstrata.core.keys import chain_seed, hash_blocks
from kvstrata.core.planner import (
    PLAN_CAPTURES,
    PLAN_CHOSEN,
    PLAN_HERE,
    PLAN_HISTORY,
    PLAN_IMAGE,
    PLAN_IMAGE_GENERATION,
    PLAN_LIMIT,
    PLAN_NUM_CAPTURES,
    PLAN_PARTIAL,
    PLAN_PARTIAL_GENERATION,
    PLAN_PARTIAL_KEY_0,
    PLAN_PARTIAL_KEY_1,
    PLAN_REACH,
    PLAN_WAYS,
    SOURCES,
    WAY_BLOCKS,
    WAY_COST,
    WAY_LOAD,
    WAY_RESUME,
    WAY_SOURCE,
    WAY_WORDS,
    Candidate,
    ways_of,
)

__all__ = ["Join", "Load", "Plan", "Request"]

_SUSPENDED, _CHECKPOINT, _COLD = (
    int(ResumeSource.SUSPENDED),
    int(ResumeSource.CHECKPOINT),
    int(ResumeSource.COLD),
)
_WITH_CHECKPOINT = _CHECKPOINT, SOURCES.index("stored")


@dataclass(frozen=True)
class Request:
    """A prompt and all that decides which pages it may share.

    Attributes:
        tokens: int32[n], the prompt; any integer array, n at least 1.
        model: name of the model.
        weights: identity of its weights.
        adapter: name of the adapter, empty for none.
        tenant: the tenant's salt, empty for none.
        extras: block index → bytes that tokens do not carry (images, audio).
        max_resume: reuse at most so many tokens; None for no limit.
        max_new_tokens: tokens it may generate; room for them is promised at begin.
        deadline_s: how long it may wait to be admitted; None for the cap's own deadline.
        join: wait for a running sequence that is computing more of its prefix, where that is
            cheaper than to compute it too.
    """

    tokens: npt.NDArray[np.int32]
    model: str
    weights: str = ""
    adapter: str = ""
    tenant: bytes = b""
    extras: Mapping[int, bytes] | None = None
    max_resume: int | None = None
    max_new_tokens: int = 0
    deadline_s: float | None = None
    join: bool = False
    _keys: dict[int, npt.NDArray[np.int64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    _computed: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given: npt.NDArray[Any] = np.asarray(self.tokens)
        if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
            raise ConfigError(
                "tokens: expected a non-empty one-dimensional integer array, found "
                f"{given.dtype} of shape {given.shape}"
            )
        if given.dtype.itemsize > 4 and (given.min() < -(2**31) or given.max() >= 2**31):
            raise ConfigError("tokens: expected ids of 32 bits, found larger ones")
        if given.dtype == np.uint32 and given.max() >= 2**31:
            raise ConfigError("tokens: expected ids below 2**31, found larger ones")
        salt: Any = self.tenant
        if not isinstance(salt, bytes | bytearray | memoryview):
            raise ConfigError(f"tenant: expected bytes, found {salt!r}")
        object.__setattr__(self, "tenant", bytes(salt))
        if self.max_resume is not None and self.max_resume < 0:
            raise ConfigError(f"max_resume: expected at least 0, found {self.max_resume}")
        if self.max_new_tokens < 0:
            raise ConfigError(f"max_new_tokens: expected at least 0, found {self.max_new_tokens}")
        if self.extras is not None:
            given_indices: list[Any] = list(self.extras)
            for index in given_indices:
                if not isinstance(index, int) or index < 0:
                    raise ConfigError(f"extras: expected block indices from 0 on, found {index!r}")
            copied = MappingProxyType({index: bytes(extra) for index, extra in self.extras.items()})
            object.__setattr__(self, "extras", copied)
        tokens = np.array(given, dtype=np.int32)
        tokens.setflags(write=False)
        object.__setattr__(self, "tokens", tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made anew: with tokens of their own, read only, and no keys."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        if self.extras is not None:
            values["extras"] = dict(self.extras)
        return _made_anew, (type(self), values)

    @property
    def computed(self) -> int:
        """Tokens of it that it had computed itself before it was suspended; 0 for a new one."""
        return self._computed

    def continued(self, tokens: npt.NDArray[np.int32], computed: int) -> "Request":
        """The same request over prompt and output so far, of which so many tokens were computed."""
        later = replace(self, tokens=tokens)
        object.__setattr__(later, "_computed", computed)
        return later

    def seed(self, block_tokens: int) -> bytes:
        """The chain seed of this request's keys."""
        return chain_seed(self.model, self.weights, self.adapter, self.tenant, block_tokens)

    def keys(self, block_tokens: int) -> npt.NDArray[np.int64]:
        """Keys of the prompt's whole blocks: int64[n // block_tokens, 2]; hashed once."""
        keys = self._keys.get(block_tokens)
        if keys is None:
            keys = hash_blocks(self.seed(block_tokens), self.tokens, block_tokens, self.extras)
            self._keys[block_tokens] = keys
        return keys


def _made_anew(kind: type[Request], values: dict[str, Any]) -> Request:
    return kind(**values)


@dataclass(frozen=True)
class Join:
    """A running sequence that is computing more of a prefix than is here yet.

    Attributes:
        sequence: its id.
        tokens: of the prefix, that it will have.
        seconds: until then, by the observed rate.
    """

    sequence: int
    tokens: int
    seconds: float


class Load(NamedTuple):
    """What a plan needs of a lower tier before it can begin.

    Attributes:
        first: the first block to load; those before it are here.
        num_blocks: blocks to load.
        checkpoint_at: position of the checkpoint to load, 0 for none.
        num_bytes: of all of it.
    """

    first: int
    num_blocks: int
    checkpoint_at: int
    num_bytes: int


class Plan:
    """Where a request resumes and what it reuses; made by ``match``, honoured by ``begin``.

    A view of the words that the core found (:mod:`kvstrata.core.planner`): what is not asked for is
    not made.

    Attributes:
        request: the request.
        keys: int64[blocks, 2] of the prompt.
        words: int64[PLAN_WORDS], as the core wrote them.
        join: what to wait for, where the request would rather wait.
        load: what is to be loaded first; ``begin`` sees to it and lets the request wait.
    """

    __slots__ = ("_block_tokens", "_found", "_rows", "join", "keys", "load", "request", "words")

    def __init__(
        self,
        request: Request,
        keys: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        words: npt.NDArray[np.int64],
        block_tokens: int,
        load: Load | None = None,
        join: Join | None = None,
    ) -> None:
        self.request = request
        self.keys = keys
        self.words = words
        self.load = load
        self.join = join
        self._rows = rows
        self._block_tokens = block_tokens
        self._found: list[int] | None = None

    def joining(self, join: Join | None) -> "Plan":
        """The same plan, which would rather wait for this."""
        return Plan(
            self.request, self.keys, self._rows, self.words, self._block_tokens, self.load, join
        )

    def __repr__(self) -> str:
        return (
            f"Plan(source={self.source!r}, resume_at={self.resume_at}, "
            f"reused_tokens={self.reused_tokens}, history_tokens={self.history_tokens}, "
            f"prompt_tokens={self.prompt_tokens}, captures={self.captures})"
        )

    def _listed(self) -> list[int]:
        if self._found is None:
            self._found = self.words.tolist()
        return self._found

    def _word(self, place: int) -> int:
        return self._listed()[place]

    def _chosen(self, word: int) -> int:
        return self._word(PLAN_WAYS + self._word(PLAN_CHOSEN) * WAY_WORDS + word)

    @property
    def source(self) -> str:
        """Where the state comes from.

        ``history`` (none is needed), ``checkpoint``, ``replay``, ``suspended``, ``stored`` or
        ``stored replay`` (a lower tier has it) or ``cold``.
        """
        return SOURCES[self._chosen(WAY_SOURCE)]

    @property
    def resume_at(self) -> int:
        """Position in tokens from which on the engine computes; below the prompt's length."""
        return self._chosen(WAY_RESUME)

    @property
    def reused_tokens(self) -> int:
        """Tokens whose pages are reused.

        Above ``resume_at`` only in a replay: there the tokens between are computed for their state
        alone and their pages are not written.
        """
        if self._chosen(WAY_SOURCE) == _SUSPENDED:
            return self.resume_at
        return self._chosen(WAY_BLOCKS) * self._block_tokens

    @property
    def history_tokens(self) -> int:
        """How far the history is here, whole blocks."""
        return self._word(PLAN_HISTORY) * self._block_tokens

    @property
    def captures(self) -> tuple[int, ...]:
        """Positions at which a step must end so that a checkpoint can be taken."""
        words = self._listed()
        return tuple(words[PLAN_CAPTURES : PLAN_CAPTURES + words[PLAN_NUM_CAPTURES]])

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every way there was, in order of preference at equal cost."""
        return tuple(ways_of(self._listed()))

    @property
    def limited(self) -> tuple[Reason, int, int] | None:
        """Why no more is reused, layer 3: (reason, tokens here, tokens agreed), or None."""
        reach, tokens = self._word(PLAN_REACH), self._block_tokens
        here = max(self._word(PLAN_HERE), reach) * tokens
        agreed = max(self._word(PLAN_LIMIT), reach) * tokens
        source = self._chosen(WAY_SOURCE)
        if source == _SUSPENDED:
            return None
        if agreed < here:
            reason = Reason.RANK_LIMITED if agreed else Reason.RANK_INTERSECTION_EMPTY
            return reason, here, agreed
        if source in _WITH_CHECKPOINT and self.resume_at < here:
            return Reason.GROUP_LIMITED, here, self.resume_at
        if source == _COLD and here:
            return Reason.GROUP_LIMITED, here, 0
        return None

    @property
    def history(self) -> npt.NDArray[np.int64]:
        """int64[n, 2], ids and generations of the blocks that are here."""
        return self._rows[: self._word(PLAN_HISTORY)]

    @property
    def blocks(self) -> npt.NDArray[np.int64]:
        """int64[n, 2], those of them that are pinned."""
        return self._rows[: min(self._chosen(WAY_BLOCKS), self._word(PLAN_HISTORY))]

    @property
    def checkpoint(self) -> tuple[int, int]:
        """Id and generation of the image, zeros for none."""
        if self._chosen(WAY_SOURCE) not in (_CHECKPOINT, _SUSPENDED):
            return 0, 0
        return self._word(PLAN_IMAGE), self._word(PLAN_IMAGE_GENERATION)

    @property
    def partial(self) -> tuple[int, int]:
        """Id and generation of the block that it continues inside, zeros for none."""
        return self._word(PLAN_PARTIAL), self._word(PLAN_PARTIAL_GENERATION)

    @property
    def partial_key(self) -> tuple[int, int]:
        """Its key, zeros for none."""
        return self._word(PLAN_PARTIAL_KEY_0), self._word(PLAN_PARTIAL_KEY_1)

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.request.tokens)

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens the engine has to compute."""
        return self.prompt_tokens - self.resume_at

    @property
    def is_cold(self) -> bool:
        """Whether nothing is reused."""
        return self.reused_tokens == 0

    @property
    def load_bytes(self) -> int:
        """Bytes to copy or load before computing."""
        return self._chosen(WAY_LOAD)

    @property
    def cost_ns(self) -> int:
        """What it costs until the prompt is computed, by the rates it was planned with."""
        return self._chosen(WAY_COST)
