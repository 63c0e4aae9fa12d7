"""Headers as XML, written by hand."""

END = b"</ArrayOfHeaderInfo>"


def document(entries: str) -> bytes:
    return f"<ArrayOfHeaderInfo>{entries}</ArrayOfHeaderInfo>".encode()


def one_value(value: str) -> bytes:
    return document(f"<HeaderInfo><Key>k</Key>{value}</HeaderInfo>")
