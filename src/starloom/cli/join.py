"""`starloom join`: this machine becomes a device of a hub, in the foreground.

The process holds no key of any model; it does what the hub's commands say, inside one folder. By an invitation it gets
a token of its own, keeps it, and needs nothing but the address from then on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from starloom.cli.options import highest_option, json_option, workspace_option
from starloom.errors import StoreError, UsageError, WireError

if TYPE_CHECKING:
    import ssl

    from starloom.aip.transport import Transport
    from starloom.cli.kept_tokens import KeptToken
    from starloom.device.process import DeviceStatusReport
    from starloom.tools.mcp_client import McpServer
    from starloom.tools.router import ToolRouter

_Offer: TypeAlias = "Callable[[], AbstractAsyncContextManager[ToolRouter]]"
_SERVICE_PATIENCE_S = 30.0
_INVITED_AGAIN = "An invitation works once and soon ends; where the hub runs, `starloom devices invite` prints another."
_NEXT_STEPS = {  # by what the server says when it refuses a registration
    "already registered": "If that is another machine, give this one a name of its own: --name.",
    "credential is not valid": _INVITED_AGAIN,
}


class _Way:
    """How to reach one hub as one device: the token that was given, or the one that is kept."""

    def __init__(self, kept: "KeptToken", given: str | None, tls: "ssl.SSLContext | None") -> None:
        from starloom.cli.kept_tokens import in_order

        self.kept = kept
        self.given = given
        self._tls = tls
        self._tokens = in_order(given, kept.read())

    @property
    def address(self) -> str:
        """The hub's address, without a token."""
        return self.kept.address

    async def dial(self) -> "Transport":
        """Dial with the token that fits, and with the other one when the hub refuses it."""
        from starloom.aip.websocket import HandshakeRefused, connect

        for token in self._tokens[:-1]:
            try:
                return await connect(self.address, token=token, tls=self._tls)
            except HandshakeRefused as error:
                if error.status not in (401, 403):
                    raise
        try:
            return await connect(self.address, token=self._tokens[-1], tls=self._tls)
        except HandshakeRefused as error:
            if error.status not in (401, 403):
                raise
            path = "" if self.address.endswith("/ws") else " A hub's address ends in /ws."
            raise WireError(f"{error.message} {_INVITED_AGAIN}{path}") from error

    def keep(self, token: str) -> None:
        """Keep the token that we were given; if it cannot be written, it lasts as long as this process."""
        self._tokens = [token]
        try:
            self.kept.write(token)
        except StoreError as error:
            click.echo(f"starloom: {error.message} The next join needs a new invitation.", err=True)


@click.command()
@click.argument("url", envvar="STARLOOM_HUB_URL")
@click.option("--name", help="The device's name in the fleet.  [default: this machine's name]")
@click.option("--no-shell", is_flag=True, help="Do not offer the tool that runs commands.")
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Trust this certificate for wss:// instead of the system's.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Our certificate, for a hub that asks devices for one.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Its private key, unless it is in the same file.",
)
@click.option(
    "--mcp",
    "mcp_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help='Offer the tools of the MCP servers in this file too ({"mcpServers": ...}).',
)
@click.option("--service", is_flag=True, help="Write a systemd user unit that does this, instead of doing it.")
@highest_option("irreversible")
@workspace_option
@json_option
def join(
    url: str,
    name: str | None,
    no_shell: bool,
    ca_file: Path | None,
    certificate: Path | None,
    key_file: Path | None,
    mcp_file: Path | None,
    service: bool,
    highest: str,
    workspace: Path,
    as_json: bool,
) -> int:
    """Make this machine a device of the hub at URL (starloom devices invite prints it).

    The device works inside the workspace folder, reconnects by itself, and stops with Ctrl-C. Invited once, it keeps a
    token of its own: the same URL without ?token= is enough from then on.
    """
    from starloom.cli.hidden import out_of_sight
    from starloom.cli.kept_tokens import kept_token, parted
    from starloom.cli.owner import owned_tools
    from starloom.device.identity import name_of_this_machine
    from starloom.places import places

    if not url.startswith(("ws://", "wss://")):
        raise UsageError(f"A hub's address starts with ws:// or wss://, not {url[:40]!r}. `starloom up` prints it.")
    try:
        address, given = parted(url)
    except ValueError as error:
        raise UsageError(f"A hub's address is one like wss://hub.example/ws, and this one is not: {error}.") from None
    out_of_sight("STARLOOM_HUB_URL", url if given is not None else None)
    device_id = name_of_this_machine(name)
    tools = partial(owned_tools, workspace, device_id=device_id, highest=highest, shell=not no_shell)
    offer = partial(_offered, tools, _mcp_servers(mcp_file))
    tools()  # a workspace that is none is said at once
    files = {"--ca-file": ca_file, "--certificate": certificate, "--key-file": key_file}
    way = _Way(kept_token(places().data, address, device_id), given, _tls(address, files))
    if not service:
        asyncio.run(_join(way, offer, as_json=as_json))
        return 0
    words = ["join", address, "--name", device_id, "--highest", highest, "--workspace", str(workspace.absolute())]
    words += ["--no-shell"] if no_shell else []
    for option, file in {**files, "--mcp": mcp_file}.items():
        words += [option, str(file.absolute())] if file is not None else []
    return _write_service(way, offer, words, workspace=workspace.absolute(), as_json=as_json)


def _tls(address: str, files: dict[str, Path | None]) -> "ssl.SSLContext | None":
    """Return what the options with files say about TLS; None: nothing, so the system's certificates count."""
    from starloom.aip.tls import TlsSettings, client_context

    given = [option for option, file in files.items() if file is not None]
    if not given:
        return None
    if not address.startswith("wss://"):
        raise UsageError(f"{given[0]} is for a hub with TLS, whose address starts with wss://.")
    if given[-1] == "--key-file" and "--certificate" not in given:
        raise UsageError("--key-file is the key of a --certificate, and none was given.")
    authorities, certificate, key = files.values()
    return client_context(TlsSettings(authorities=authorities, certificate=certificate, key=key))


def _mcp_servers(file: Path | None) -> "tuple[McpServer, ...]":
    if file is None:
        return ()
    from starloom.cli.mcp_servers import read_mcp_servers

    return read_mcp_servers(file)


@asynccontextmanager
async def _offered(tools: "Callable[..., ToolRouter]", servers: "tuple[McpServer, ...]") -> "AsyncIterator[ToolRouter]":
    """Hold the servers and yield the device's tools; without servers nothing of MCP is loaded."""
    if not servers:
        yield tools()
        return
    from starloom.cli.mcp_servers import mcp_toolsets

    async with mcp_toolsets(servers, lambda text: click.echo(f"starloom: {text}", err=True)) as more:
        yield tools(more=more)


async def _join(way: _Way, offer: _Offer, *, as_json: bool, until_kept: bool = False) -> None:
    """Be a device until interrupted, or with `until_kept` until a token of its own has come."""
    from starloom.clock import SystemClock
    from starloom.device.attempts import AttemptJournal
    from starloom.device.identity import identity_of_this_machine
    from starloom.device.process import run_device
    from starloom.places import places
    from starloom.safety.paths import folder_name

    identity = identity_of_this_machine(way.kept.device_id)
    came = asyncio.Event()

    def report(status: "DeviceStatusReport") -> None:
        if as_json:
            import json

            click.echo(json.dumps({"state": status.state, "detail": status.detail, "retry_in_s": status.retry_in_s}))
        else:
            again = f" (again in {status.retry_in_s:.0f} s)" if status.retry_in_s else ""
            click.echo(f"{identity.device_id}: {status.state} {status.detail}{again}{_next_step(status)}")

    def keep(token: str) -> None:
        way.keep(token)
        came.set()

    async with AsyncExitStack() as stack:
        path = places().data / "attempts" / f"{folder_name(identity.device_id)}.sqlite"
        attempts = await AttemptJournal.open(path)
        stack.push_async_callback(attempts.close)
        router = await stack.enter_async_context(offer())
        device = run_device(
            way.dial, router, identity, clock=SystemClock(), on_status=report, attempts=attempts, on_credential=keep
        )
        if not until_kept:
            return await device
        running = asyncio.ensure_future(device)
        try:
            async with asyncio.timeout(_SERVICE_PATIENCE_S):
                await came.wait()
        finally:
            running.cancel()
            await asyncio.wait([running])


def _next_step(status: "DeviceStatusReport") -> str:
    """Return what a person can do about a refusal; nothing for anything else."""
    if status.state != "refused":
        return ""
    return next((f". {step}" for said, step in _NEXT_STEPS.items() if said in status.detail), "")


def _write_service(way: _Way, offer: _Offer, words: list[str], *, workspace: Path, as_json: bool) -> int:
    """Get the token that the service needs, then write the unit; nothing is started."""
    import json

    from starloom.cli.kept_tokens import is_bound, is_invitation
    from starloom.cli.service import unit_path, unit_text, write_unit

    unit = unit_path(way.kept.device_id)
    text = unit_text(words, device_id=way.kept.device_id, workspace=workspace)
    if is_invitation(way.given):
        try:
            asyncio.run(_join(way, offer, as_json=as_json, until_kept=True))
        except TimeoutError:
            raise WireError(
                f"The hub at {way.address} gave no token within {_SERVICE_PATIENCE_S:g} s; no unit was written. "
                "Ask for a new invitation: starloom devices invite."
            ) from None
    elif way.given is not None:
        way.kept.write(way.given)
    if way.kept.read() is None:
        raise UsageError(
            f"There is no token for {way.address} as {way.kept.device_id!r}. Take one by an invitation: "
            "`starloom devices invite` where the hub runs, and its line here with --service."
        )
    write_unit(unit, text)
    shared = not is_bound(way.kept.read())
    if as_json:
        click.echo(json.dumps({"unit": str(unit), "token_file": str(way.kept.path), "shared_key": shared}))
        return 0
    click.echo(f"Written: {unit}")
    click.echo(f"It holds no secret; the token is in {way.kept.path}, for you alone.")
    if shared:
        click.echo("That is the hub's own key, which opens everything there. Better: starloom devices invite.")
    click.echo(f"Start it now and with each login:  systemctl --user enable --now {unit.name}")
    click.echo("Start it at boot, without a login: loginctl enable-linger")
    return 0
