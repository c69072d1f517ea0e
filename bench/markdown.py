"""Tables of Markdown."""


def table(head: list[str], body: list[list[str]]) -> str:
    """A table; the first column stands left."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in body)])
