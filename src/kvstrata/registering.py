"""What an engine tells the cache about itself: ABIs, kernels, mappings, rates, topology."""

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kvstrata.core.abi import Abi, abi_of
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType
from kvstrata.core.layout import CacheLayout
from kvstrata.core.planner import Rates, rates_of
from kvstrata.core.words import ABI_MASK, VERSION_MASK, Arena

from .caller import CoreCaller, zeros

if TYPE_CHECKING:
    from .topology import Topology

__all__ = ["Registrar"]

_RATE_STEP = 0.1
"""A rate is logged anew when what is observed has moved by so much of it."""
_RATE_WEIGHT = 0.2
"""Weight of one observation in the running mean."""


_FASTEST = 1e15
_RATES = ("tokens", "bytes", "loads")
"""What is observed, in the order of :class:`.Rates`."""


class _Blobs(Protocol):
    def put_blob(self, value: Any) -> bytes: ...


class Registrar:
    """Registers for one manager.

    Args:
        layout: the layout.
        call: runs compiled calls.
        blobs: where what does not fit an event is kept; None keeps only its digest.
    """

    def __init__(self, layout: CacheLayout, call: CoreCaller, blobs: _Blobs | None) -> None:
        self._layout = layout
        self._call = call
        self._blobs = blobs
        self._abis: dict[int, bytes] = {}
        rates = rates_of(call.arena)
        self._mean = dict(zip(_RATES, map(float, rates), strict=True))
        self._seen = dict.fromkeys(_RATES, 0)

    def abi(self, group: str, abi: Abi) -> None:
        """See :meth:`.manager.CacheManager.register_abi`."""
        number = self._layout.group_id(group)
        spec = self._layout.groups[number]
        mine = (spec.name, spec.kind.name, spec.page_bytes, spec.ratio, spec.window, spec.overlap)
        theirs = (abi.group, abi.kind, abi.page_bytes, abi.ratio, abi.window, abi.overlap)
        if mine != theirs:
            raise ConfigError(
                f"register_abi of {group}: expected the ABI of (group, kind, page bytes, ratio, "
                f"window, overlap) {mine}, found {theirs}"
            )
        payload = self._payload(abi.to_json())
        payload[2] = abi.word() & ABI_MASK
        self._call.note(EventType.ABI_REGISTERED, payload, group=number)
        self._abis[number] = abi.digest()

    def abi_digest(self, group: int) -> bytes:
        """Digest of the ABI that a group is read by now, 16 bytes."""
        found = self._abis.get(group)
        if found is None:
            found = abi_of(self._layout, self._layout.groups[group].name).digest()
            self._abis[group] = found
        return found

    def kernel(self, group: str, name: str, version: str, ready: bool) -> None:
        """See :meth:`.manager.CacheManager.register_kernel`."""
        payload = self._payload({"kernel": name, "version": version})
        payload[2] = ready
        number = self._layout.group_id(group)
        self._call.note(EventType.KERNEL_REGISTERED, payload, group=number)

    def mapping(self, group: str, version: str, resident: bool) -> None:
        """See :meth:`.manager.CacheManager.register_mapping`."""
        number = self._layout.group_id(group)
        if self._layout.groups[number].kind.name != "COMPRESSED":
            kind = self._layout.groups[number].kind.name
            raise ConfigError(f"register_mapping: expected a COMPRESSED group, found {kind}")
        payload = self._payload({"mapping": version})
        payload[2] = int(payload[0]) & VERSION_MASK if version else 0
        payload[3] = resident
        self._call.note(EventType.MAPPING_REGISTERED, payload, group=number)

    def topology(self, topology: "Topology") -> None:
        """Log where the pools are."""
        self._call.note(EventType.TOPOLOGY_SEALED, self._payload(topology.to_json()))

    def rates(self, rates: Rates) -> None:
        """Plan by these rates from now on."""
        for name, value in rates._asdict().items():
            if not 1 <= value < 2**62:
                raise ConfigError(f"{name}: expected at least 1, found {value}")
        if rates == rates_of(self._call.arena):
            return
        payload = zeros(4)
        payload[:3] = rates
        self._call.note(EventType.RATES_OBSERVED, payload)

    def observe(self, what: str, amount: int, seconds: float) -> None:
        """Take one observation into the running mean of a rate; log it where it has moved."""
        rate = amount / seconds if seconds > 0 else math.inf
        if not 0 <= rate < _FASTEST:
            raise ConfigError(
                f"expected an amount and a time that give a rate below {_FASTEST:g} a second, "
                f"found {amount} in {seconds} s"
            )
        rates = rates_of(self._call.arena)
        now = dict(zip(_RATES, rates, strict=True))
        weight = _RATE_WEIGHT if self._seen[what] else 1.0
        self._seen[what] += 1
        self._mean[what] += weight * (rate - self._mean[what])
        if abs(self._mean[what] - now[what]) > _RATE_STEP * now[what]:
            now[what] = max(int(self._mean[what]), 1)
            self.rates(Rates(*now.values()))

    def _payload(self, value: Any) -> Arena:
        """Four words, the first two of which name a blob."""
        payload = zeros(4)
        if self._blobs is not None:
            digest = self._blobs.put_blob(value)
        else:
            text = json.dumps(value, sort_keys=True, separators=(",", ":"))
            digest = hashlib.sha256(text.encode()).digest()[:16]
        payload[:2] = np.frombuffer(digest, dtype="<i8")
        return payload
