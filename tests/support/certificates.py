"""Certificates of the tests' own."""

from pathlib import Path

import trustme


class Authority:
    """A certificate authority, whose files are in a folder of its own in `folder`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self._authority = trustme.CA(organization_name=name)
        self.certificate = self._folder / "authority.pem"
        self._authority.cert_pem.write_to_path(self.certificate)

    def sign(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for the host or client of a name."""
        certificate, key = (self._folder / f"{name}.{kind}" for kind in ("pem", "key"))
        signed = self._authority.issue_cert(name, common_name=name)
        signed.cert_chain_pems[0].write_to_path(certificate)
        signed.private_key_pem.write_to_path(key)
        # libpq reads no key that others may read.
        key.chmod(0o600)
        return certificate, key
