"""Why a goal is missed, in words, shown beside its figure; by what the row begins with."""

REASONS = {
    "prefill chunk of 8,192 tokens, prompt of 8k": (
        "Each block costs nine events, three a page, and this prompt's only chunk is cut in two "
        "where a checkpoint is wanted; longer prompts reach it."
    ),
    "chat": (
        "A fifth of a request is hashing, which the peer does not do; most of the rest is Python "
        "around compiled calls, whose caches are cold after each."
    ),
    "decode step, batch 1": (
        "Two compiled calls and the Python that checks thread, arrays and order around them."
    ),
    "conversation trace": (
        "It is missed: hashing a request's 12,000 tokens takes 50 us, writing its 950 events some "
        "100, and its 340 tokens are decoded in five to six steps of 64, 15 us each; the rest is "
        "Python around two dozen calls, which find the processor's caches cold each time."
    ),
    "flat": (
        "From half a million tokens on, the rows of a prompt's blocks in the tables are more than "
        "the processor's second-level cache holds, and each block waits for memory."
    ),
    "memory": (
        "A block takes 364 bytes of tables: 128 of its own, 64 for each of its three pages, 44 to "
        "find both. They keep what the others do not: each page's generation, checksum, stamp and "
        "last event; and they are made whole at the start, so that nothing grows while serving."
    ),
    "replay of 10": (
        "Applying an event touches about five lines of memory of tables that no cache holds; "
        "reading and checking the log is the rest; runs on this machine differ by half."
    ),
    "open, snapshot": (
        "Replaying takes most of it, and its time differs with how much memory the machine gives."
    ),
    "finish, 1M": (
        "Each of 8,192 blocks is given back in tables that no cache holds, so memory sets the time."
    ),
    "spilling, share": (
        "Half of the processor's time is the kernel's, making and filling files; the rest is "
        "naming, cataloguing and logging each object, which fio does not do."
    ),
    "loading cold": (
        "Each page is read again for its checksum, and two cores do that beside the kernel's "
        "copying."
    ),
    "loading warm": (
        "Memory is the limit: fio reads into one buffer a job that stays in the processor's cache, "
        "here each byte goes to a page of its own, and the kernel's copying there keeps both cores "
        "at work for half of the time. Plain unchecked reads into such pages are slower."
    ),
    "16,384 tokens restored": (
        "The demo's blocks are 16 tokens, so these are 1,024 objects of a few kilobytes: it is the "
        "time of a thousand small files, most of it Python's."
    ),
    "import and open": "Importing numba alone takes 0.4 to 0.6 s.",
    "durable events": "The writer shares two cores with the producer.",
    "cost of the log": (
        "The ring is written by the same call; what it costs shows only where calls are short."
    ),
}


def reason_for(title: str) -> str:
    """Why the goal of a row is missed, or nothing where nobody knows."""
    return next((text for start, text in REASONS.items() if title.startswith(start)), "")
