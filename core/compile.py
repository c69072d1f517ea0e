"""How the core is compiled: one decorator, and a cache that never serves stale code.

Compiled functions take flat int64 arrays, make views of them and return ints. They hold no
reference counts (``_nrt=False``): arrays passed between them cost nothing, and in return they
may neither allocate arrays nor hand one back to Python.

Numba's own file cache looks only at the file of the function at hand. A table edited in another
module, frozen into the machine code as a constant, would go unnoticed. So the cache folder here
is named by a digest of *all* core sources: any edit starts an empty one. A module elsewhere that
compiles a function adds the digest of its own file.
"""

import hashlib
import os
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target

__all__ = ["cache_folder", "compiled", "get_ready", "helper", "sources_digest"]

F = TypeVar("F", bound=Callable[..., Any])

_CORE = Path(__file__).resolve().parent


def sources_digest() -> str:
    """Digest of every source file of the core, with numba's version.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(_CORE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def cache_folder() -> Path:
    """Folder of the compiled code for the sources as they are now.

    ``KVSTRATA_CACHE_DIR`` names another root than the user's cache folder.
    """
    root = os.environ.get("KVSTRATA_CACHE_DIR")
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        root = str(Path(base) / "kvstrata")
    return Path(root) / "compiled" / _DIGEST


class _Locator(caching._CacheLocator):
    """Places compiled code in :func:`cache_folder`, whose name stamps the core's sources."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._name = f"{py_func.__module__}.{py_func.__qualname__}"
        self._stamp = _DIGEST
        path = Path(py_file).resolve()
        if path.parent != _CORE and path.is_file():
            self._stamp += hashlib.sha256(path.read_bytes()).hexdigest()[:32]

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return hashlib.sha256(self._name.encode()).hexdigest()[:10]

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_Locator | None":
        locator = cls(py_func, py_file)
        try:
            locator.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:
            return None  # a read-only home: compile in memory
        return locator


class _CacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  # numba's own protocol


class _File(caching.IndexDataCacheFile):
    """Machine code under its digest and its key: LLVM aborts on damaged code, or runs it.

    Processes that compile at once may give their code the same name, so the key is asked too.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        found = super().load(key)  # type: ignore[no-untyped-call]
        return found[1] if found is not None and found[0] == key else None

    def _save_data(self, name: str, data: Any) -> None:
        body = self._dump(data)  # type: ignore[no-untyped-call]
        with self._open_for_write(self._data_path(name)) as file:  # type: ignore[no-untyped-call]
            file.write(hashlib.sha256(body).digest() + body)

    def _load_data(self, name: str) -> Any:
        stored = Path(self._data_path(name)).read_bytes()  # type: ignore[no-untyped-call]
        size = hashlib.sha256().digest_size
        if hashlib.sha256(stored[size:]).digest() != stored[:size]:
            raise ValueError(f"{name}: expected the code that was compiled, found it damaged")
        return pickle.loads(stored[size:])


class _Cache(caching.Cache):
    """A cache that a damaged file, or one that cannot be read, costs a compile and nothing else."""

    _impl_class: Any = _CacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _File(self._cache_path, self._impl.filename_base, stamp)  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except OSError:
            return None
        except Exception:  # whatever reading bytes that are none of numba's may raise
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception as error:  # a full disk, a folder in the file's place
            warnings.warn(f"compiled code is not kept for the next start: {error}", stacklevel=2)


_DIGEST = sources_digest()
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "error_model": "numpy"}


def helper(function: F) -> F:
    """Compile a helper into whatever compiled function calls it: no call, nothing passed."""
    dispatcher: Any = numba.njit(**_OPTIONS, forceinline=True)(function)
    return cast(F, dispatcher)


def compiled(function: F) -> F:
    """Compile a core function (plain Python under ``NUMBA_DISABLE_JIT=1``)."""
    dispatcher: Any = numba.njit(**_OPTIONS)(function)
    if isinstance(dispatcher, Dispatcher):
        with suppress(RuntimeError):  # no writable cache folder: compile in memory
            setattr(dispatcher, "_cache", _Cache(function))  # noqa: B010
    return cast(F, dispatcher)


def get_ready(*functions: Callable[..., Any]) -> None:
    """Do now what the first call of a compiled function would do, so that no caller waits for it.

    Numba sets up its target once a process, about 0.2 s. Nothing is compiled: of ``functions`` the
    forms are loaded that were compiled before.
    """
    if getattr(numba.config, "DISABLE_JIT", 0):
        return
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    for function in functions:
        cache: Any = getattr(function, "_cache", None)
        file: Any = getattr(cache, "_cache_file", None)
        if file is None:
            continue  # nowhere to keep it
        codegen = getattr(function, "targetctx").codegen()  # noqa: B009
        with suppress(Exception):  # a damaged file: the first call compiles
            for key in file._load_index():
                if key == cache._index_key(key[0], codegen):
                    cres = cache.load_overload(key[0], getattr(function, "targetctx"))  # noqa: B009
                    if cres is not None:
                        getattr(function, "add_overload")(cres)  # noqa: B009
