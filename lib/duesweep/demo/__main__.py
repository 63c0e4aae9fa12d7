"""`python -m duesweep.demo [folder]`: starts the demonstration's database again, until Ctrl-C."""

import signal
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from duesweep import config as configuration
from duesweep.core.errors import DuesweepError, ExitCode
from duesweep.demo.folder import lock_folder
from duesweep.demo.server import EmbeddedServer


def main() -> int:
    """Serve the database that `duesweep demo` left in the folder, under the same dsn."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo").absolute()
    try:
        config = configuration.load(folder / "duesweep.toml")
        dsn = config.store.dsn.get_secret_value()
        with lock_folder(folder), EmbeddedServer(folder, port=urlsplit(dsn).port) as server:
            print(f"Listening, until Ctrl-C: {dsn}", flush=True)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with suppress(KeyboardInterrupt):
                signal.pause()
            server.stop("fast")
    except DuesweepError as error:
        print(f"duesweep.demo: {error}", file=sys.stderr)
        return error.exit_code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
