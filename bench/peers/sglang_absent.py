"""Stand-ins for packages that SGLang imports and that a cache manager alone never calls.

SGLang's modules import Triton, torchvision and tvm_ffi at the top, for GPU kernels and for images.
None has a build for a machine without a GPU that fits the CPU build of torch, and nothing here
calls them: the allocators and trees of the adapters run on torch alone. Their names therefore
resolve to modules without content, unless the package is installed.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _AbsentType(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent

    def __getitem__(cls, key: Any) -> Any:
        return cls


class Absent(metaclass=_AbsentType):
    """Whatever an absent module is asked for: a base class, an annotation or a decorator."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        if len(arguments) == 1 and callable(arguments[0]) and not named:
            return arguments[0]
        return object.__new__(cls)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else self


class _AbsentModule(ModuleType):
    __version__ = "0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent


class _Finder(MetaPathFinder, Loader):
    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self._packages:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def resolve_absent(*packages: str) -> tuple[str, ...]:
    """Let these packages be imported though they are not installed; returns which are not."""
    missing = tuple(name for name in packages if importlib.util.find_spec(name) is None)
    sys.meta_path.append(_Finder(frozenset(missing)))
    return missing
