"""Where a remote store finds endpoint and credentials, and what its failures mean.

Endpoint, region and credentials come from the usual places, the first that has them:

1. the environment: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``,
   ``AWS_REGION``, ``AWS_ENDPOINT_URL`` (or ``AWS_ENDPOINT_URL_S3``), and what else obstore reads
   there, such as ``AWS_SKIP_SIGNATURE``;
2. the profile named by ``AWS_PROFILE``, else ``default``, in ``~/.aws/credentials`` and
   ``~/.aws/config`` (``AWS_SHARED_CREDENTIALS_FILE``, ``AWS_CONFIG_FILE``): keys, session token,
   ``region`` and ``endpoint_url``. Profiles that lead to others (roles, single sign-on,
   ``credential_process``) are not followed: put their keys into the environment;
3. obstore's own chain: web identity, container and instance credentials.

An ``http://`` endpoint is allowed where it is named like this; the default is TLS.
"""

import configparser
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import Reason

from .store import StoreFault

if TYPE_CHECKING:
    from obstore.store import S3Config

__all__ = ["endpoint_of", "fault_of", "profile_settings"]

_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key")
_INDIRECT: Final = ("role_arn", "sso_session", "sso_start_url", "credential_process")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TIMEOUTS: Final = ("kind: Timeout", "TimedOut")
# Error codes that say that no request can succeed.
_OF_THE_WHOLE: Final = (
    "NoSuchBucket",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "RequestTimeTooSkewed",
)
_MESSAGE_CHARACTERS: Final = 300


def profile_settings(environment: Mapping[str, str]) -> "S3Config":
    """What a profile adds to the environment.

    Args:
        environment: of the process.

    Raises:
        ConfigError: ``AWS_PROFILE`` names a profile that is not there or has no keys.
    """
    profile = environment.get("AWS_PROFILE", "")
    values = _profile(environment, profile or "default")
    settings: S3Config = {}
    if "region" in values and not any(name in environment for name in _REGIONS):
        settings["region"] = values["region"]
    if "endpoint_url" in values and not any(name in environment for name in _ENDPOINTS):
        settings["endpoint"] = values["endpoint_url"]
    if "AWS_ACCESS_KEY_ID" in environment:
        return settings
    if all(key in values for key in _KEYS):
        settings["access_key_id"], settings["secret_access_key"] = (values[k] for k in _KEYS)
        if "aws_session_token" in values:
            settings["session_token"] = values["aws_session_token"]
    elif profile:
        indirect = next((name for name in _INDIRECT if name in values), "")
        found = f"{indirect}, which is not followed" if indirect else "none"
        raise ConfigError(
            f"expected access keys in the profile {profile!r} (AWS_PROFILE), found {found}; put "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY into the environment"
        )
    return settings


def endpoint_of(settings: "S3Config", environment: Mapping[str, str]) -> str:
    """The endpoint in use, "" for that of the region."""
    named = [environment[name] for name in _ENDPOINTS if name in environment]
    return named[0] if named else settings.get("endpoint", "")


def _profile(environment: Mapping[str, str], profile: str) -> dict[str, str]:
    """The values of one profile, those of the credentials file before those of the other."""
    folder = Path(environment.get("HOME") or Path.home()) / ".aws"
    config = environment.get("AWS_CONFIG_FILE") or folder / "config"
    credentials = environment.get("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials"
    section = profile if profile == "default" else f"profile {profile}"
    return _section(Path(config), section) | _section(Path(credentials), profile)


def _section(path: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(path.expanduser().read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"expected an AWS profile file, found {path}: {error}") from error
    return dict(parser.items(section)) if parser.has_section(section) else {}


def fault_of(error: Exception, name: str) -> StoreFault:
    """The fault that a failed request means.

    Args:
        error: as obstore raised it; of its kinds only some are classes, the rest stands in its
            text.
        name: of the object.
    """
    text = str(error)
    is_outage = any(code in text for code in _OF_THE_WHOLE)
    if isinstance(error, FileNotFoundError) and not is_outage:
        reason = Reason.OBJECT_MISSING
    elif isinstance(error, PermissionDeniedError | UnauthenticatedError):
        reason = Reason.OBJECT_FORBIDDEN
        is_outage |= isinstance(error, UnauthenticatedError)
    elif "416 Range Not Satisfiable" in text:
        reason = Reason.OBJECT_TRUNCATED
    else:
        is_outage = True
        timed_out = any(mark in text for mark in _TIMEOUTS)
        reason = Reason.STORE_TIMEOUT if timed_out else Reason.STORE_FAILED
    return StoreFault(reason, f"{name}: {_brief(text)}", is_outage)


def _brief(text: str) -> str:
    """One line: obstore appends its structures, and the server its document."""
    line = " ".join(re.split(r"\n\s*Debug source|<\?xml", text)[0].split())
    code = re.search(r"<Code>(\w+)</Code>", text)
    return line[:_MESSAGE_CHARACTERS] + (f" ({code[1]})" if code else "")
