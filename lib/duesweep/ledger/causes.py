"""Why a ledger's storage failed: the deepest cause in the text of an error of delta-rs, what to do
about it, and whether it may pass.

delta-rs writes one cause a line, with arrows and colours, or a chain of them on one line;
`tests/unit/ledger/delta_rs_errors.json` has texts of delta-rs 1.6.
"""

import re

from duesweep.core.causes import Cause, Meaning, meant
from duesweep.core.errors import NO_DESCRIPTORS

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ARROW = re.compile(r"\n\s*↳\s*")
# With RUST_BACKTRACE, or where the library is built so, the stack follows.
_STACK = re.compile(r"\n\s*\d+: .*", re.DOTALL)
# The names of layers, which say nothing about the cause.
_LAYERS = re.compile(
    r"(?:(?:Kernel|External|Parquet|Arrow|Json|Object Store|Parquet argument|Generic delta kernel"
    r"|Generic DeltaTable|Generic (?:S3|LocalFileSystem|MicrosoftAzure|GCS|HTTP)|HTTP) error"
    r"|Failed to parse parquet|Optimize selected-file scan failed while scanning data)"
    r"\s*(?::|->)\s*"
)
_STATUS = re.compile(r"[1-5]\d\d [A-Z][A-Za-z ]*")
_XML_CODE, _XML_MESSAGE = re.compile(r"<Code>([^<]*)"), re.compile(r"<Message>([^<]*)")
_GAP = re.compile(r"filename: \"([^\"]+)\"")
# The address of the services that give a cloud's machines their credentials.
_MACHINES_CREDENTIALS = "169.254.169.254"
_LONGEST = 400

_OTHER_WRITER = (
    'set ledger.writer = "spark": the tables have features that delta-rs does not support'
)
_CREDENTIALS = (
    "put the credentials for ledger.root into the environment, such as AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)
_CHECK = (
    "check ledger.root, the right to it and, in the environment, its credentials; with "
    'ledger.writer = "spark" they are Spark\'s'
)
# The first one that fits counts; the last one fits all.
_MEANINGS = (
    Meaning(
        r"No space left on device|Disk quota exceeded|Input/output error|Read-only file system"
        r"|Stale file handle|Transport endpoint is not connected|Connection refused"
        r"|Connection reset|[Tt]imed out|dns error|failed to lookup address|No route to host"
        r"|Network is unreachable|\b50[0-9] [A-Z]|SlowDown|429 Too Many",
        may_pass=True,
        advice=_CHECK,
    ),
    Meaning(r"Too many open files", may_pass=True, advice=str(NO_DESCRIPTORS.advice)),
    Meaning(
        r"ExpiredToken|TokenRefreshRequired|RequestExpired|[Tt]oken (?:has |is )?expired",
        may_pass=True,
        advice="renew the credentials for ledger.root in the environment",
    ),
    Meaning(
        r"URL scheme is not allowed",
        may_pass=False,
        advice="set AWS_ALLOW_HTTP=true in the environment for an endpoint without TLS, or an "
        "https endpoint in AWS_ENDPOINT_URL",
    ),
    Meaning(
        r"NoSuchBucket|ContainerNotFound|specified bucket does not exist",
        may_pass=False,
        advice="create the bucket or container of ledger.root, or correct ledger.root",
    ),
    Meaning(
        r"incorrectly configured region|PermanentRedirect|AuthorizationHeaderMalformed",
        may_pass=False,
        advice="set AWS_REGION in the environment to the bucket's region",
    ),
    Meaning(re.escape(_MACHINES_CREDENTIALS), may_pass=False, advice=_CREDENTIALS),
    Meaning(
        r"(?s)Unable to rename file.*\(os error (?:1|38|95|524)\)",
        may_pass=False,
        advice="the folder's file system has to have hard links, which Azure Files, SMB and some "
        "others lack: set ledger.root to a local disk, s3:, abfss: or gs:, or "
        'ledger.writer = "spark"',
    ),
    Meaning(
        r"[Uu]nsupported|not yet supported|[Dd]eletion ?[Vv]ector",
        may_pass=False,
        advice=_OTHER_WRITER,
    ),
    Meaning("", may_pass=False, advice=_CHECK),
)


def cause_of(text: str, *, is_protocol: bool = False) -> Cause:
    """The cause in an error's text. `is_protocol`: the table asks for more than the reader can."""
    clean = _STACK.sub("", _COLOURS.sub("", text))
    phrase = _phrase(clean)
    if is_protocol:
        return Cause(phrase, may_pass=False, advice=_OTHER_WRITER)
    return meant(clean, phrase, _MEANINGS)


def _phrase(text: str) -> str:
    if _MACHINES_CREDENTIALS in text:
        return "there are no credentials for it"
    links = [" ".join(link.split()) for link in _ARROW.split(text)]
    links = [link for link in links if link]
    status = next((index for index, link in enumerate(links) if _STATUS.fullmatch(link)), None)
    if status is not None:
        body = " ".join(links[status + 1 :])
        told = [found[1] for each in (_XML_CODE, _XML_MESSAGE) if (found := each.search(body))]
        return _shortened(": ".join([links[status], *filter(None, told)]))
    if len(links) > 1:
        # The last but one names the act that failed.
        parts = [_without_layers(link) for link in links[-2:]]
        return _shortened(": ".join(part for part in parts if part and "://" not in part))
    first_line = _without_layers(text.strip().partition("\n")[0])
    if "found gap" in text:
        return "commits are missing between " + " and ".join(_GAP.findall(text)[:2])
    return _shortened(first_line)


def _without_layers(text: str) -> str:
    """The text without the layers' names, and without the address that was asked."""
    text = _LAYERS.sub("", text)
    *_, last = text.rpartition(" - ") if "://" in text else ("", "", text)
    return last.strip(" :.")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
