"""What object storage answers when it refuses, as one line that says what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from manyscale.runner import limits
from manyscale.runner.errors import UserError

_KEYS: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of ~/.aws/credentials, or give the "
    "machine a role"
)
_WHERE_KEYS_ARE: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "GOOGLE_APPLICATION_CREDENTIALS",
)  # fmt: skip
_DENIED: Final = "permission is denied"
# (what its errors contain, in words, what to do), by the first that fits
_ANSWERS: Final = (
    (r"RequestTimeTooSkewed|REQUEST_TIME_TOO_SKEWED|REQUEST_EXPIRED",
     "the clock of this machine differs too much from the storage's", "set it (timedatectl set-ntp true)"),
    (r"NoSuchBucket|NO_SUCH_BUCKET|bucket does not exist|Bucket .* not found",
     "there is no such bucket", "make it, or mend the address"),
    (r"PermanentRedirect|AuthorizationHeaderMalformed|HTTP status 301|IllegalLocationConstraint|region",
     "the bucket is in another region", "set AWS_REGION to the bucket's, or write ?region=NAME behind the address"),
    (r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE"
     r"|ExpiredToken|InvalidToken|INVALID_CLIENT_TOKEN_ID|UNRECOGNIZED_CLIENT",
     "the storage does not take these keys", f"{_KEYS}; keys may have expired"),
    (r"MISSING_AUTHENTICATION_TOKEN|No credentials|could not (find|determine) .*credential|Could not load .*credential",
     "there are no keys for it", _KEYS),
    (r"AccessDenied|ACCESS_DENIED|PERMISSION_DENIED|HTTP status 403|Permission denied|UNAUTHENTICATED",
     _DENIED, f"let its owner allow reading, listing and writing there, or use other keys: {_KEYS}"),
    (r"HTTP status 400", "it does not take these keys, or this region", "see whether both are right"),
    (r"QuotaExceeded|HTTP status 507|No space left|Disk quota", "it is full", "make room there"),
    (r"SLOW_DOWN|THROTTLING|HTTP status 50[03]|InternalError|INTERNAL_FAILURE|SERVICE_UNAVAILABLE",
     "the storage is overloaded or failing", "run again later"),
    (r"NETWORK_CONNECTION|curlCode|[Cc]ouldn't resolve|[Tt]imeout|timed out|UNAVAILABLE|Connection refused|"
     r"Failed to connect|DEADLINE",
     "nothing answers there", "see whether the network and AWS_ENDPOINT_URL (endpoint_override) are right"),
)  # fmt: skip


@contextmanager
def told(place: str, what: str) -> Iterator[None]:
    """An error of the storage is one line: ``place`` cannot be ``what``. FileNotFoundError passes. Raises UserError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        why = _of_folder(error) if place.startswith("file:") else in_words(str(error))
        raise UserError(f"{place}: cannot be {what}: {why}") from None


def _of_folder(error: OSError) -> str:
    """``in_words`` of a folder that is named by an address: it has no keys and no regions."""
    if limits.is_limit(error):
        return limits.in_words(error)
    number = limits.number(error)
    return f"{error if number is None else os.strerror(number)}; mend this and run again"


def in_words(answer: str) -> str:
    """What is wrong and what to do. Of the answer itself nothing is repeated but the name of its error: it may quote
    what was sent."""
    answer = answer.partition("AWS Error")[2] or answer  # what stands before names the object, in the user's words
    for pattern, meaning, mend in _ANSWERS:
        if re.search(pattern, answer):
            more = "" if meaning != _DENIED or _has_keys() else ", and there are no keys in the environment or ~/.aws"
            return f"{meaning}{more}; {mend}"
    found = re.search(r"^ (\w+)|HTTP status (\d+)|\[Errno \d+\] ([A-Z][a-z ]+)", answer)
    name = next((each for each in found.groups() if each), "") if found else ""
    return f"the storage refused{f' ({name})' if name else ''}; see whether it is reached from here by other means"


def _has_keys() -> bool:
    """Whether anything here may give keys, roles of the machine aside."""
    return any(name in os.environ for name in _WHERE_KEYS_ARE) or any(
        Path("~/.aws", name).expanduser().is_file() for name in ("credentials", "config")
    )
