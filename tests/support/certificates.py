"""Certificates of the tests' own, made with openssl."""

import subprocess
from pathlib import Path

from support.services import UNPACKED, environment_of, find_program, is_missing

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CA = ("basicConstraints = critical, CA:TRUE", "keyUsage = critical, keyCertSign")


class Authority:
    """A certificate authority with a folder of its own in `folder`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder / name
        self._name = name
        self.certificate = self._folder / "authority.pem"
        self._key = self._folder / "authority.key"
        self._is_made = False

    def sign(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for the host or client of a name."""
        self._make()
        certificate, key = (self._folder / f"{name}.{kind}" for kind in ("pem", "key"))
        request, extensions = (self._folder / f"{name}.{kind}" for kind in ("csr", "ext"))
        extensions.write_text(
            f"subjectAltName = DNS:{name}\nauthorityKeyIdentifier = keyid\n", "utf-8"
        )
        run_openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signing = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "2")
        run_openssl(
            "x509", "-req", "-in", request, *signing, "-extfile", extensions, "-out", certificate
        )
        return certificate, key

    def _make(self) -> None:
        if self._is_made:
            return
        self._folder.mkdir()
        own = ("-subj", f"/CN={self._name}", "-keyout", self._key, "-out", self.certificate)
        # Under the settings of the machine's openssl.cnf some of these would be there twice.
        settings = self._folder / "authority.cnf"
        settings.write_text(
            "\n".join(("[req]", "distinguished_name = n", "[n]", "[x]", *_CA)), "utf-8"
        )
        more = ("-config", settings, "-extensions", "x", "-days", "2")
        run_openssl("req", "-x509", *_KEY, *own, *more)
        self._is_made = True


def run_openssl(*arguments: str | Path) -> None:
    """Run a command of openssl; it has to succeed. The test is skipped where openssl is missing."""
    program = find_program("openssl", "openssl")
    if program is None:
        is_missing("openssl")
    environment = dict(environment_of("openssl"))
    if Path(program).is_relative_to(UNPACKED):
        # Its package's own settings are in /etc otherwise.
        environment["OPENSSL_CONF"] = str(UNPACKED / "openssl" / "etc" / "ssl" / "openssl.cnf")
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
