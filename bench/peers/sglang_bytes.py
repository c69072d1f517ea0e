"""Bytes that a cache holds: of the heap it allocates from, or of the objects reachable from it."""

import ctypes
import gc

HEAP = (
    "Growth of the bytes in use by the C allocator (mallinfo2) since before the pools were made, "
    "less the rows of running requests; the tree allocates there and so do tensors."
)
REACHABLE = (
    "Sizes of all Python objects and tensor storages reachable from the cache, allocators "
    "included, less the rows of running requests."
)


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def heap() -> int:
    """Bytes in use by the process's C allocator, mapped blocks included."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    usage = mallinfo()
    return int(usage.uordblks + usage.hblkhd)
