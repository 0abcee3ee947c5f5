"""Certificates for tests that speak TLS over real sockets, made with openssl."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate."""

    path: Path
    key: Path


def self_signed(folder: Path, name: str) -> Certificate:
    """Make a certificate for 127.0.0.1 that is its own authority, and may sign others."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    address = ["-addext", "subjectAltName=IP:127.0.0.1"]
    _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}", *address, *_files(made))
    return made


def signed_by(authority: Certificate, folder: Path, name: str, *dns: str) -> Certificate:
    """Make a client's certificate for a name, and more DNS names, that the authority signed."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    names = ["-addext", "subjectAltName=" + ",".join(f"DNS:{word}" for word in dns)] if dns else []
    signed = ["-CA", str(authority.path), "-CAkey", str(authority.key), "-addext", "basicConstraints=CA:FALSE"]
    _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}", *names, *signed, *_files(made))
    return made


_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def _files(made: Certificate) -> list[str]:
    return ["-out", str(made.path), "-keyout", str(made.key)]


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
