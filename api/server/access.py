"""Who may do what: bearer tokens with roles, from a file."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from kvstrata.core.errors import ConfigError
from kvstrata.eventstore.history.catalogue import Who

__all__ = ["Access", "Role"]

_LEAST_TOKEN: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"
    """Read everything, and ask for explanations and queries."""
    OPERATOR = "operator"
    """What a viewer may; besides give commands, work on incidents, and read the audit trail."""


_LOCAL: Final = Who("local", Role.OPERATOR)


@dataclass(frozen=True)
class _Token:
    who: Who
    digest: bytes


class Access:
    """Knows tokens by their digests; the tokens themselves are not kept.

    Args:
        tokens: (role, name, token) triples; None where everybody who can connect is an operator.
    """

    def __init__(self, tokens: list[tuple[Role, str, str]] | None = None) -> None:
        self._tokens: list[_Token] | None = None
        if tokens is not None:
            self._tokens = [_Token(Who(name, role), _digest(token)) for role, name, token in tokens]

    @classmethod
    def read(cls, path: Path) -> Access:
        """Read a token file: a line per token, ``ROLE NAME TOKEN``; ``#`` begins a comment.

        Raises:
            ConfigError: it cannot be read, holds something else, or no token at all.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not text"
            raise ConfigError(f"token file {path}: expected a readable text, {reason}") from error
        tokens = []
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if words:
                tokens.append(_parse(path, number, words))
        if not tokens:
            raise ConfigError(f"token file {path}: expected at least one token, found none")
        digests = {_digest(token) for _, _, token in tokens}
        names = {name for _, name, _ in tokens}
        if len(digests) < len(tokens) or len(names) < len(tokens):
            raise ConfigError(f"token file {path}: expected names and tokens of one use each")
        return cls(tokens)

    @property
    def is_open(self) -> bool:
        """Whether everybody who can connect is let in."""
        return self._tokens is None

    def who(self, authorization: str | None) -> Who | None:
        """Whose token a header bears, or None; it takes as long whichever it is.

        Args:
            authorization: the header's value, None where there is none.
        """
        if self._tokens is None:
            return _LOCAL
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip() if scheme.lower() == "bearer" else "")
        found = None
        for known in self._tokens:
            if hmac.compare_digest(known.digest, given):
                found = known.who
        return found


def _parse(path: Path, number: int, words: list[str]) -> tuple[Role, str, str]:
    where = f"token file {path}, line {number}"  # never the line itself: it holds a secret
    if len(words) != 3:
        raise ConfigError(f"{where}: expected ROLE NAME TOKEN, found {len(words)} words")
    role, name, token = words
    if role not in tuple(Role):
        raise ConfigError(f"{where}: expected the role {' or '.join(Role)}, found another word")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: expected a name of letters, digits, '_', '.', '@' and '-'")
    if len(token) < _LEAST_TOKEN:
        raise ConfigError(
            f"{where}: expected a token of at least {_LEAST_TOKEN} characters, found "
            f"{len(token)}; make one with: openssl rand -hex 24"
        )
    return Role(role), name, token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
