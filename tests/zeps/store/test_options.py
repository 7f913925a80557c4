"""zambezi.zeps.store.options: names of options are checked before a library passes over them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from zambezi.zeps.errors import StoreError
from zambezi.zeps.store.options import check_options

URLS = ["s3://bucket/p", "s3a://bucket", "gs://bucket", "az://box", "abfss://box@account.dfs.core.windows.net/p"]


@pytest.mark.parametrize("url", URLS)
def test_an_unknown_option_is_refused_with_the_usual_ones(url: str) -> None:
    check_options(url, ["allow_http", "ALLOW_HTTP", "timeout"])
    with pytest.raises(StoreError, match=r"the store has no option 'colour'; the usual ones are .*, allow_http, "):
        check_options(url, ["allow_http", "colour"])
    check_options(url, ["colour"], also=["colour"])


def test_names_can_have_the_prefix_of_their_variables() -> None:
    check_options("s3://b", ["AWS_ENDPOINT_URL", "aws_region", "endpoint", "AWS_SESSION_TOKEN"])
    check_options("gs://b", ["GOOGLE_SERVICE_ACCOUNT", "service_account_key"])
    check_options("az://b", ["AZURE_STORAGE_ACCOUNT_KEY", "azure_client_id", "account_name"])
    with pytest.raises(StoreError, match=r"'AWS_ENDPOINT_ULR'; did you mean endpoint_url\?"):
        check_options("s3://b", ["AWS_ENDPOINT_ULR"])


def test_a_directory_has_no_options_to_check() -> None:
    check_options("/var/lib/zambezi", ["colour"])


@pytest.mark.parametrize(
    ("url", "file", "name"),
    [
        ("s3://b", "_aws.pyi", "S3Config"),
        ("gs://b", "_gcs.pyi", "GCSConfig"),
        ("az://b", "_azure.pyi", "AzureConfig"),
        ("s3://b", "_client.pyi", "ClientConfig"),
    ],
)
def test_every_option_that_obstore_declares_is_known(url: str, file: str, name: str) -> None:
    package = Path(pytest.importorskip("obstore").__file__).parent
    tree = ast.parse((package / "_store" / file).read_text())
    declared = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    fields = [node.target for node in declared.body if isinstance(node, ast.AnnAssign)]
    names = [field.id for field in fields if isinstance(field, ast.Name)]
    assert len(names) > 5
    check_options(url, [one for one in names if one != "default_headers"])  # which is no text
