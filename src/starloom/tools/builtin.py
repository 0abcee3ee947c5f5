"""The toolsets that a device offers out of the box, over one workspace.

Called where a device is composed: by the session for the local device and by the command line for `join`.
"""

from starloom.tools.files import files_toolset
from starloom.tools.invoices import invoices_toolset
from starloom.tools.pdf import pdf_toolset
from starloom.tools.reports import reports_toolset
from starloom.tools.sheets import sheets_toolset
from starloom.tools.shell import shell_toolset
from starloom.tools.toolset import Toolset
from starloom.tools.workspace import Workspace


def builtin_toolsets(workspace: Workspace, *, shell: bool = True) -> tuple[Toolset, ...]:
    """Return Starloom's own toolsets; with `shell=False` the device cannot run programs at all."""
    toolsets = (
        files_toolset(workspace),
        invoices_toolset(workspace),
        sheets_toolset(workspace),
        reports_toolset(workspace),
        pdf_toolset(workspace),
    )
    return (*toolsets, shell_toolset(workspace)) if shell else toolsets
