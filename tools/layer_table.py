"""The import-linter contract that holds "which folder may import which" as a table."""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

FACE = "face"


class LayerTableContract(Contract):
    """Every direct import inside the root package must be allowed by a row of the table.

    A row reads ``folder: folder folder``. A folder is a subpackage by its name below the root;
    ``face`` stands for the root package's own modules, those of no folder with a row. A module
    belongs to the deepest folder that has a row.
    """

    root = fields.StringField()
    rows = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare each import of the graph with the table."""
        root = str(self.root)
        table = _parse_rows([str(row) for row in self.rows])  # type: ignore[attr-defined]
        broken: list[dict[str, Any]] = []
        for importer in sorted(graph.modules):
            if not _is_inside(importer, root):
                continue
            importer_folder = _folder_of(importer, root, table)
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if not _is_inside(imported, root):
                    continue
                imported_folder = _folder_of(imported, root, table)
                if imported_folder in {importer_folder, *table[importer_folder]}:
                    continue
                details = graph.get_import_details(importer=importer, imported=imported)
                broken.append(
                    {
                        "importer": importer,
                        "imported": imported,
                        "line": details[0]["line_number"] if details else 0,
                        "expected": f"{importer_folder} imports only "
                        f"{', '.join(sorted(table[importer_folder])) or 'itself'}",
                    }
                )
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print a line for each import that the table does not allow."""
        for found in check.metadata["broken"]:
            output.print_error(
                f"{found['importer']}:{found['line']} imports {found['imported']}, "
                f"but {found['expected']}"
            )


def _is_inside(module: str, root: str) -> bool:
    return module == root or module.startswith(f"{root}.")


def _folder_of(module: str, root: str, table: dict[str, set[str]]) -> str:
    parts = module.removeprefix(root).removeprefix(".").split(".")
    for length in range(len(parts), 0, -1):
        folder = ".".join(parts[:length])
        if folder in table:
            return folder
    return FACE


def _parse_rows(rows: list[str]) -> dict[str, set[str]]:
    table: dict[str, set[str]] = {FACE: set()}
    for row in rows:
        folder, separator, allowed = row.partition(":")
        if not separator:
            raise ValueError(f"expected a row 'folder: folder folder', found {row!r}")
        table[folder.strip()] = set(allowed.split())
    for folder, allowed_folders in table.items():
        unknown = allowed_folders - set(table)
        if unknown:
            raise ValueError(f"row {folder!r} names folders without a row: {sorted(unknown)}")
    return table
