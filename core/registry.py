"""What an engine registers, as apply sees it: ABIs, kernels, compression mappings, rates."""

from .compile import compiled, helper
from .events import EventType
from .refusals import NO_SUCH_GROUP, OK
from .views import holder_table, pool_table
from .words import (
    HOLDER_FREE,
    HOLDER_KIND,
    HOLDER_TAINTED,
    KERNEL_GIVEN,
    KERNEL_READY,
    MAPPING_GIVEN,
    MAPPING_READY,
    META_BYTES_PER_S,
    META_INCARNATION,
    META_LOAD_BYTES_PER_S,
    META_NUM_GROUPS,
    META_NUM_SEQUENCES,
    META_TOKENS_PER_S,
    POOL_ABI,
    POOL_LAYOUT_ABI,
    POOL_READY,
    POOL_VERSION,
    Arena,
)

__all__ = ["begin_incarnation", "observe_rates", "register"]

_ABI: int = int(EventType.ABI_REGISTERED)
_KERNEL: int = int(EventType.KERNEL_REGISTERED)


@compiled
def begin_incarnation(arena: Arena, event: Arena) -> int:
    """MANAGER_OPENED: what the engine before registered is not here until it is registered again.

    A group for which no engine registered anything is read by the reference kernels, which are
    always there, in the layout's own form.
    """
    arena[META_INCARNATION] = event[6]
    pools = pool_table(arena)
    for group in range(arena[META_NUM_GROUPS]):
        pools[group, POOL_ABI] = pools[group, POOL_LAYOUT_ABI]
        ready = pools[group, POOL_READY]
        if ready & KERNEL_GIVEN:
            ready &= ~KERNEL_READY
        if ready & MAPPING_GIVEN:
            ready &= ~MAPPING_READY
        pools[group, POOL_READY] = ready
    return OK


@helper
def _taint_all(arena: Arena) -> None:
    """What runs has pages half written for the reader before: nobody may find what it computes."""
    holders = holder_table(arena)
    for row in range(1, arena[META_NUM_SEQUENCES] + 1):
        if holders[row, HOLDER_KIND] != HOLDER_FREE:
            holders[row, HOLDER_TAINTED] = 1


@compiled
def register(arena: Arena, kind: int, event: Arena) -> int:
    """ABI_REGISTERED, KERNEL_REGISTERED, MAPPING_REGISTERED: what reads a group from now on."""
    group = (event[2] >> 8) & 0xFF
    if group >= arena[META_NUM_GROUPS]:
        return NO_SUCH_GROUP
    pool = pool_table(arena)[group]
    if kind == _ABI:
        if pool[POOL_ABI] != event[6]:
            _taint_all(arena)
        pool[POOL_ABI] = event[6]
    elif kind == _KERNEL:
        ready = KERNEL_READY if event[6] != 0 else 0
        pool[POOL_READY] = (pool[POOL_READY] & ~KERNEL_READY) | ready | KERNEL_GIVEN
    else:
        ready = MAPPING_READY if event[7] != 0 else 0
        if pool[POOL_VERSION] != event[6]:
            _taint_all(arena)
        pool[POOL_VERSION] = event[6]
        pool[POOL_READY] = (pool[POOL_READY] & ~MAPPING_READY) | ready | MAPPING_GIVEN
    return OK


@compiled
def observe_rates(arena: Arena, event: Arena) -> int:
    """RATES_OBSERVED: the planner's rates from now on."""
    arena[META_TOKENS_PER_S] = event[4]
    arena[META_BYTES_PER_S] = event[5]
    if event[6] > 0:
        arena[META_LOAD_BYTES_PER_S] = event[6]
    return OK
