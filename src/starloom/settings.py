"""Settings: one YAML file that nests each room's own frozen model, with the environment above it.

Read once by the composition root and the command line; no room below imports this. An unknown key is an error that
suggests the nearest known one.
"""

import difflib
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from starloom.errors import UsageError
from starloom.fleet.settings import FleetSettings
from starloom.llm.budgets import Budgets
from starloom.llm.settings import ModelSettings
from starloom.orchestrator.settings import InDoubt, RunSettings


class HubSettings(BaseModel):
    """Where the hub listens. Loopback unless the user says otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(default=5000, ge=0, le=65535, description="0: any free port")
    names: tuple[str, ...] = Field(default=(), description="names beside the host's own that the hub answers to")
    certificate: Path | None = Field(default=None, description="the hub's certificate with its chain; given: TLS only")
    key_file: Path | None = Field(default=None, description="its private key; none: it is in the certificate's file")
    client_authorities: Path | None = Field(
        default=None, description="who may vouch for devices: a device whose certificate they signed is that device"
    )
    client_certificates: Literal["optional", "required"] = Field(
        default="optional", description="whether a device may come without a certificate"
    )
    devices_file: Path | None = Field(default=None, description="UFO's devices.yaml: devices behind servers of its own")
    device_name: str = Field(default="hub", description="the name of the hub's own local device")
    device_grace_s: float = Field(
        default=15.0, ge=0, description="how long a command that is its own hub waits for a lost device"
    )
    max_steps: int = Field(default=50, ge=1, description="steps of one device agent's round")

    @model_validator(mode="after")
    def _certificates_fit_together(self) -> "HubSettings":
        if self.key_file is not None and self.certificate is None:
            raise ValueError("a key_file needs a certificate")
        if self.client_authorities is not None and self.certificate is None:
            raise ValueError("client_authorities need a certificate: without TLS nobody can show one")
        if self.client_certificates == "required" and self.client_authorities is None:
            raise ValueError("required client_certificates need client_authorities, who sign them")
        return self


# A hub's runs wait for devices and ask a person what only a person can know.
_RUNS = RunSettings(device_wait_s=None, in_doubt=InDoubt.ASK)


class Settings(BaseModel):
    """All settings; every part has defaults, so an empty file is a valid one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hub: HubSettings = HubSettings()
    fleet: FleetSettings = FleetSettings()
    runs: RunSettings = _RUNS
    models: ModelSettings = ModelSettings()
    budgets: Budgets = Budgets()


def load_settings(path: Path) -> Settings:
    """Read the settings file; a missing file gives the defaults.

    Raises:
        UsageError: not YAML, an unknown key (with the nearest known one), or a value of the wrong type.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except OSError as error:
        raise UsageError(f"The settings file {path} cannot be read: {error.strerror}.", path=str(path)) from error
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f" in line {place.line + 1}" if place else ""
        raise UsageError(f"The settings file {path} is not valid YAML{where}.", path=str(path)) from error
    try:
        return Settings.model_validate(_over_our_own(content))
    except ValidationError as error:
        raise UsageError(f"The settings file {path}: {_first_complaint(error)}", path=str(path)) from error


def _over_our_own(content: Any) -> Any:  # noqa: ANN401 - whatever the file holds; the model judges it
    """Return the file's content with what a hub's runs have by default where the file says nothing."""
    if isinstance(content, dict) and isinstance(content.get("runs"), dict):
        return {**content, "runs": {**_RUNS.model_dump(exclude_unset=True), **content["runs"]}}
    return content


def _first_complaint(error: ValidationError) -> str:
    first = error.errors()[0]
    keys = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(keys[-1], _keys_beside(keys), n=1)
        advice = f" Did you mean {near[0]!r}?" if near else ""
        return f"{'.'.join(keys)!r} is not a setting.{advice}"
    return f"{'.'.join(keys) or 'the whole file'}: {first['msg']}."


def _keys_beside(keys: list[str]) -> list[str]:
    model: Any = Settings
    for key in keys[:-1]:
        field = model.model_fields.get(key)
        model = field.annotation if field is not None else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
    return list(model.model_fields)
