"""Small faults, as edits of one line of the core, that the comparison with the reference finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """An edit of one file of the core, and what the comparison then says."""

    name: str
    file: str
    old: str
    new: str
    complaint: str


IN_A_WALK = (
    Mutation(
        name="transition row: an open page that is sealed stays open",
        file="states.py",
        old='(_S.OPEN, _E.PAGE_SEALED): (_S.SEALED, "the step',
        new='(_S.OPEN, _E.PAGE_SEALED): (_S.OPEN, "the step',
        complaint="PAGE_SEALED",
    ),
)
"""Found in a random history."""

IN_SHORT_HISTORIES = (
    Mutation(
        name="idle list: a pinned unit keeps its place in it",
        file="units.py",
        old="        unlink_unit(arena, is_block, IDLE_LIST, unit)\n"
        "    rows[unit, UNIT_REFS] += 1\n",
        new="        pass\n    rows[unit, UNIT_REFS] += 1\n",
        complaint="blocks/idle",
    ),
    Mutation(
        name="idle list: a prefix is released from its first block",
        file="holders.py",
        old="    for index in range(holder[HOLDER_BLOCKS] - 1, -1, -1):\n",
        new="    for index in range(holder[HOLDER_BLOCKS]):\n",
        complaint="blocks/idle",
    ),
    Mutation(
        name="match: a replay begins where the window does, inside a block",
        file="planner.py",
        old="arena[META_REPLAY_TOKENS]) // tokens * tokens\n",
        new="arena[META_REPLAY_TOKENS] - 1)\n",
        complaint="/plan/resume_at",
    ),
    Mutation(
        name="captures: a checkpoint is taken of what a replay has not made exact yet",
        file="captures.py",
        old="        if position < steps[row, STEP_EXACT] or holder",
        new="        if holder",
        complaint="PAGE_RESERVED",
    ),
    Mutation(
        name="captures: what every multiple wants may be rolling",
        file="captures.py",
        old=" and (every == 0 or position % every != 0):\n",
        new=":\n",
        complaint="commit:",
    ),
    Mutation(
        name="superseded: a checkpoint that others resumed from too",
        file="sealing.py",
        old="        and rows[origin, UNIT_RESUMES] == 1\n",
        new="        and rows[origin, UNIT_RESUMES] >= 1\n",
        complaint="images/idle",
    ),
    Mutation(
        name="superseded: the checkpoint stays where it is in the idle list",
        file="sealing.py",
        old="        unlink_unit(arena, False, IDLE_LIST, origin)\n"
        "        prepend_unit(arena, False, IDLE_LIST, origin)\n",
        new="        pass\n",
        complaint="images/idle",
    ),
    Mutation(
        name="taint: the block is looked for in the first place only",
        file="holders.py",
        old="            for index in range(holder[HOLDER_BLOCKS]):\n"
        "                if holder_blocks(arena)[row, index] == unit:\n",
        new="            for index in range(1):\n"
        "                if holder_blocks(arena)[row, index] == unit:\n",
        complaint="/tainted",
    ),
    Mutation(
        name="taint: what is sealed can be found",
        file="sealing.py",
        old="    tainted = holder_table(arena)[row, HOLDER_TAINTED] != 0\n",
        new="    tainted = False\n",
        complaint="blocks/units",
    ),
    Mutation(
        name="orphans: what hangs from a bad block stays findable",
        file="apply.py",
        old="            withdraw_orphans(arena)\n",
        new="            pass\n",
        complaint="PAGE_FREED",
    ),
    Mutation(
        name="suspend: what a replay has not made exact yet is kept",
        file="suspend.py",
        old=" or position < steps[row, STEP_EXACT]:\n",
        new=":\n",
        complaint="suspend:",
    ),
    Mutation(
        name="fork: the child of a replay is exact",
        file="suspend.py",
        old="    steps[row, STEP_EXACT] = steps[parent, STEP_EXACT]\n",
        new="",
        complaint="/exact",
    ),
)
"""Found in the histories of ``test_resuming`` and ``test_forking``."""

IN_LOADS = (
    Mutation(
        name="stored: where the table is full the key told of last is forgotten",
        file="stored.py",
        old="        oldest = rows[0, STORED_NEXT]\n",
        new="        oldest = rows[0, STORED_PREV]\n",
        complaint="/stored/order",
    ),
    Mutation(
        name="stored: a key's checkpoint is told of, and its block forgotten",
        file="stored.py",
        old="(rows[row, STORED_TIERS] & ~(TIERS_MASK << shift)) | tiers << shift\n",
        new="tiers << shift\n",
        complaint="/stored/keys",
    ),
    Mutation(
        name="load: one that is tainted seals what came",
        file="loading.py",
        old="    if holder[HOLDER_TAINTED] != 0:\n",
        new="    if holder[HOLDER_TAINTED] != 0 and load[LOAD_POSITION] != 0:\n",
        complaint="end_load",
    ),
    Mutation(
        name="load: a loaded block hangs from nothing",
        file="loading.py",
        old="        parent = parent_to_name(arena, row, index)\n",
        new="        parent = 0\n",
        complaint="end_load",
    ),
    Mutation(
        name="load: the pages of its checkpoint do not drain",
        file="loading.py",
        old="    if image != 0 and unit_is_in(arena, False, image, _LOADING):\n",
        new="    if image < 0:\n",
        complaint="drain_load",
    ),
    Mutation(
        name="load: what it pins is no room, even where others pin it too",
        file="loading.py",
        old="    blocks = available(arena, True) - idle_blocks_of(arena, plan, ask)\n",
        new="    blocks = available(arena, True) - plan.shape[0]\n",
        complaint="core NoRoom",
    ),
    Mutation(
        name="plan: a checkpoint that is here is reckoned as loaded",
        file="planner.py",
        old="        loaded = 0 if found.image_here else image_bytes\n",
        new="        loaded = image_bytes\n",
        complaint="/plan/load",
    ),
)
"""Found in the histories of ``test_load_histories``."""
