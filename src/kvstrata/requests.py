"""What an engine asks for, and what a match answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError, InvariantViolation
from kvstrata.core.events import Reason
from kvstrata.core.keys import chain_seed, hash_blocks
from kvstrata.core.planner import Candidate

__all__ = ["Join", "Load", "Plan", "Request"]


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


class Plan(NamedTuple):
    """Where a request resumes and what it reuses; made by ``match``, honoured by ``begin``.

    Attributes:
        request: the request.
        resume_at: position in tokens from which on the engine computes; below the prompt's length.
        reused_tokens: tokens whose pages are reused. Above ``resume_at`` only in a replay: there
            the tokens between are computed for their state alone and their pages are not written.
        history_tokens: how far the history is here, whole blocks.
        source: where the state comes from: ``history`` (none is needed), ``checkpoint``,
            ``replay``, ``suspended``, ``stored`` or ``stored replay`` (a lower tier has it) or
            ``cold``.
        captures: positions at which a step must end so that a checkpoint can be taken.
        candidates: every way there was, in order of preference at equal cost.
        limited: why no more is reused, layer 3: (reason, tokens here, tokens agreed), or None.
        keys: int64[blocks, 2] of the prompt.
        history: int64[n, 2], ids and generations of the blocks that are here.
        blocks: int64[n, 2], those of them that are pinned.
        checkpoint: id and generation of the image, zeros for none.
        partial: id and generation of the partial block, zeros for none.
        partial_key: its key.
        join: what to wait for, where the request would rather wait.
        load: what is to be loaded first; ``begin`` sees to it and lets the request wait.
    """

    request: Request
    resume_at: int
    reused_tokens: int
    history_tokens: int
    source: str
    captures: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    limited: tuple[Reason, int, int] | None
    keys: npt.NDArray[np.int64]
    history: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int64]
    checkpoint: tuple[int, int]
    partial: tuple[int, int]
    partial_key: tuple[int, int]
    join: Join | None = None
    load: Load | None = None

    def __repr__(self) -> str:
        return (
            f"Plan(source={self.source!r}, resume_at={self.resume_at}, "
            f"reused_tokens={self.reused_tokens}, history_tokens={self.history_tokens}, "
            f"prompt_tokens={self.prompt_tokens}, captures={self.captures})"
        )

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return id(self)

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
        return self._way.load_bytes

    @property
    def cost_ns(self) -> int:
        """What it costs until the prompt is computed, by the rates it was planned with."""
        return self._way.cost_ns

    @property
    def _way(self) -> Candidate:
        for way in self.candidates:
            if way.source == self.source:
                return way
        raise InvariantViolation(f"no candidate is the chosen one, {self.source}")
