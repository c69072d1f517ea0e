"""AWS profiles: what they add to the environment, and which are refused."""

from pathlib import Path

import pytest

from kvstrata.core.errors import ConfigError
from kvstrata.tiers.remote_settings import profile_settings


def write_profiles(home: Path, credentials: str, config: str = "") -> None:
    folder = home / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(credentials)
    (folder / "config").write_text(config)


KEYS = "aws_access_key_id = id\naws_secret_access_key = secret%with=signs\n"


def test_a_profile_gives_what_the_environment_does_not(tmp_path: Path) -> None:
    config = "[profile lab]\nregion = eu-north-1\nendpoint_url = http://127.0.0.1:9\n"
    write_profiles(tmp_path, f"[default]\n{KEYS}\n[lab]\n{KEYS}aws_session_token = token\n", config)
    home = {"HOME": str(tmp_path)}
    keys = {"access_key_id": "id", "secret_access_key": "secret%with=signs"}
    assert profile_settings(home) == keys
    of_config = {"region": "eu-north-1", "endpoint": "http://127.0.0.1:9"}
    lab = home | {"AWS_PROFILE": "lab"}
    assert profile_settings(lab) == keys | of_config | {"session_token": "token"}
    set_already = {
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:8",
    }
    assert profile_settings(lab | set_already) == {}


def test_profile_files_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"[default]\n{KEYS}")
    (tmp_path / "settings").write_text("[default]\nregion = eu-west-1\n")
    environment = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"),
        "AWS_CONFIG_FILE": str(tmp_path / "settings"),
    }
    assert profile_settings(environment)["region"] == "eu-west-1"
    assert profile_settings(environment)["access_key_id"] == "id"


def test_without_profiles_nothing_is_set(tmp_path: Path) -> None:
    assert profile_settings({"HOME": str(tmp_path)}) == {}


@pytest.mark.parametrize(
    ("credentials", "config", "message"),
    [
        ("", "", "found none"),
        (
            "",
            "[profile lab]\nrole_arn = arn:aws:iam::1:role/x\n",
            "role_arn, which is not followed",
        ),
        ("[lab\n", "", "expected an AWS profile file"),
    ],
)
def test_a_profile_without_keys_is_refused(
    tmp_path: Path, credentials: str, config: str, message: str
) -> None:
    write_profiles(tmp_path, credentials, config)
    with pytest.raises(ConfigError, match=message):
        profile_settings({"HOME": str(tmp_path), "AWS_PROFILE": "lab"})
