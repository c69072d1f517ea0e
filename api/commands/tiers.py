"""``kvstrata tiers``: what lies below the device: look at it, check it, index it, tidy it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..output import FOUND_SOMETHING_WRONG, JsonFlag, print_facts, print_json, print_table
from ..sizes import format_bytes
from ..stores import CatalogueOption, Place, StoreArgument, TierOption, bar, the_extra
from ..tallies import Tally, tally

if TYPE_CHECKING:
    from kvstrata.tiers.catalogue import Entry
    from kvstrata.tiers.fields import Fault
    from kvstrata.tiers.store import Store, StoredObject

__all__ = ["app"]

_EPILOG = """
[bold]Examples[/bold]

kvstrata tiers show /var/lib/kvstrata/disk

kvstrata tiers check /var/lib/kvstrata/disk --json

kvstrata tiers rebuild s3://bucket/prefix --catalogue postgresql+psycopg://user@host/kvstrata

kvstrata tiers collect /var/lib/kvstrata/disk --dry-run

All work beside running engines. They need the extra: kvstrata\\[tiers].
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", epilog=_EPILOG)


@app.callback()
def _root() -> None:
    """Look at, check and tidy the folders and buckets that keep what was computed."""


@app.command(
    epilog="[bold]Examples[/bold]\n\nkvstrata tiers show DIR\n\n"
    "A namespace is what only engines of one layout, format and compressor share. Nothing is read "
    "but the list of objects."
)
def show(store: StoreArgument, as_json: JsonFlag = False) -> None:
    """Say how many objects there are, how big and how old, by namespace and kind."""
    place = Place.of(store)
    with place.store() as opened:
        tallies = tally(opened.objects())
    num_objects = sum(each.num_objects for each in tallies)
    num_bytes = sum(each.num_bytes for each in tallies)
    if as_json:
        total = {"num_objects": num_objects, "num_bytes": num_bytes}
        print_json({"store": place.url, **total, "kinds": [asdict(each) for each in tallies]})
        return
    if tallies:
        print_table(Tally.HEADER, (each.cells() for each in tallies))
    typer.echo(f"{num_objects:,} objects, {format_bytes(num_bytes)}")


@app.command(
    epilog="[bold]Examples[/bold]\n\nkvstrata tiers rebuild DIR\n\n"
    "kvstrata tiers rebuild s3://bucket/prefix --catalogue URL\n\n"
    "Rows that are there keep their last use. Exit code 1 if an object has a header that is not "
    "readable: it gets no row."
)
def rebuild(
    store: StoreArgument,
    catalogue: CatalogueOption = None,
    tier: TierOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make the catalogue anew from the objects, by their headers."""
    place = Place.of(store)
    with place.catalogue(catalogue) as rows, place.store() as opened, bar(place.url) as progress:
        from kvstrata.tiers.rebuild import rebuild as rebuild_catalogue

        done = rebuild_catalogue(opened, rows, place.tier(tier), progress=progress)
    if as_json:
        print_json({"store": place.url, **done._asdict(), "faults": _as_json(done.faults)})
    else:
        print_facts(
            [
                ("rows", f"{done.num_objects:,} of {format_bytes(done.num_bytes)}"),
                ("rows removed", f"{done.num_removed:,}"),
            ]
        )
    _end(done.faults, as_json)


@app.command(
    epilog="[bold]Examples[/bold]\n\nkvstrata tiers check DIR\n\n"
    "kvstrata tiers check DIR --quarantine    (bad ones move aside, to be looked at)\n\n"
    "Exit code 1 if an object is bad. One of another format version, or one that this user may "
    "not read, is named but never set aside."
)
def check(
    store: StoreArgument,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Set bad objects aside: nothing finds them again.")
    ] = False,
    catalogue: CatalogueOption = None,
    tier: TierOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Read every object whole and check its header, its checksums and its trailer."""
    place = Place.of(store)
    with place.store() as opened:
        objects = list(opened.objects())
        with bar(place.url) as progress:
            faults = _check(opened, objects, progress)
        aside = _set_aside(opened, faults) if quarantine else []
    if aside and place.has_catalogue(catalogue):
        with place.catalogue(catalogue) as rows:
            rows.remove(place.tier(tier), aside)
    num_bytes = sum(stored.num_bytes for stored in objects)
    if as_json:
        print_json(
            {
                "store": place.url,
                "num_objects": len(objects),
                "num_bytes": num_bytes,
                "faults": _as_json(faults),
                "set_aside": aside,
                "is_sound": not faults,
            }
        )
    else:
        print_facts([("objects", f"{len(objects):,} of {format_bytes(num_bytes)}")])
        if aside:
            print_facts([("set aside", f"{len(aside):,}")])
    _end(faults, as_json, "sound")


@app.command(
    epilog="[bold]Examples[/bold]\n\nkvstrata tiers collect DIR --dry-run\n\n"
    "Files that a dead writer left are removed an hour after it wrote them. An object that the "
    "catalogue does not know gets a row; it is never deleted. Exit code 1 if its header is not "
    "readable."
)
def collect(
    store: StoreArgument,
    catalogue: CatalogueOption = None,
    tier: TierOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where they differ; change nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove what dead writers left and make the catalogue agree with the objects."""
    place = Place.of(store)
    if dry_run:
        _show_garbage(place, catalogue, place.tier(tier), as_json)
        return
    with place.catalogue(catalogue) as rows, place.store() as opened:
        from kvstrata.tiers.garbage import collect_garbage

        done = collect_garbage(opened, rows, place.tier(tier))
    if as_json:
        found = {**done._asdict(), "faults": _as_json(done.faults)}
        print_json({"store": place.url, "dry_run": False, **found})
    else:
        print_facts(
            [
                ("files of dead writers removed", f"{done.num_temporaries:,}"),
                ("rows without object removed", f"{done.num_rows_removed:,}"),
                ("rows added for objects", f"{done.num_rows_added:,}"),
            ]
        )
    _end(done.faults, as_json)


def _show_garbage(place: Place, catalogue: str | None, tier: str, as_json: bool) -> None:
    with the_extra():
        from kvstrata.tiers.garbage import find_garbage

    with ExitStack() as stack:
        opened = stack.enter_context(place.store())
        entries: Iterable[Entry] = ()
        if place.has_catalogue(catalogue):
            entries = stack.enter_context(place.catalogue(catalogue)).entries(tier)
        garbage = find_garbage(opened, entries)
    objects = [stored.name for stored in garbage.objects]
    if as_json:
        fields = {"rows_without_object": garbage.rows, "objects_without_row": objects}
        print_json({"store": place.url, "dry_run": True, **fields})
        return
    for name in garbage.rows:
        typer.echo(f"row without object: {name}")
    for name in objects:
        typer.echo(f"object without row: {name}")
    typer.echo("nothing was changed")


def _check(store: Store, objects: Sequence[StoredObject], progress: Any) -> list[tuple[str, Fault]]:
    from kvstrata.core.events import Reason
    from kvstrata.tiers.checking import check_object

    faults = []
    for done, stored in enumerate(objects, 1):
        fault = check_object(store, stored)
        if fault is not None and fault.reason is not Reason.OBJECT_MISSING:  # gone since
            faults.append((stored.name, fault))
        progress(done, len(objects))
    return faults


def _set_aside(store: Store, faults: Iterable[tuple[str, Fault]]) -> list[str]:
    from kvstrata.core.events import Reason

    may_be_good = (Reason.OBJECT_VERSION, Reason.OBJECT_FORBIDDEN, Reason.OBJECT_UNREADABLE)
    names = [name for name, fault in faults if fault.reason not in may_be_good]
    for name in names:
        store.set_aside(name)
    return names


def _as_json(faults: Iterable[tuple[str, Fault]]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "reason": fault.reason.name.lower(),
            "group": fault.group,
            "detail": fault.detail,
        }
        for name, fault in faults
    ]


def _end(faults: Sequence[tuple[str, Fault]], as_json: bool, when_sound: str = "") -> None:
    """Print the faults for people, and end with exit code 1 where there are some."""
    if not as_json:
        for name, fault in faults:
            typer.echo(f"fault: {name}: {fault.reason.name.lower()}: {fault.detail}")
        if faults or when_sound:
            typer.echo(f"{len(faults)} faults" if faults else when_sound)
    if faults:
        raise typer.Exit(FOUND_SOMETHING_WRONG)
