"""The finding on TLS of a PostgreSQL session."""

from duesweep.checks.finding import Check, Finding, ok, warning


def certificate(setting: str, sslmode: str, *, is_encrypted: bool) -> Finding:
    """Whether a session that works by `sslmode` checks what it asks for."""
    check = Check.SERVER_CERTIFICATE
    unchecked = {"require": "certificate", "verify-ca": "name in the server's certificate"}
    if not is_encrypted and sslmode in {*unchecked, "verify-full"}:
        text = f"The session uses a Unix socket, without TLS (sslmode {sslmode})"
        return ok(check, setting, text)
    if sslmode in unchecked:
        return warning(
            check,
            setting,
            f"The session is encrypted, but the {unchecked[sslmode]} is not checked "
            f"(sslmode {sslmode}): another server could take this one's place, and be sent "
            "messages and the password",
            f"Set sslmode=verify-full in {setting}, and sslrootcert to the file of its "
            "authority, or to system for the machine's authorities",
        )
    if sslmode == "verify-full":
        return ok(check, setting, "The server's certificate and its name are checked")
    state = "is encrypted, but nothing is checked" if is_encrypted else "is not encrypted"
    text = f"TLS was not asked for (sslmode {sslmode}); this session {state}"
    return ok(check, setting, text)
