"""The names of the options of object stores. They are those of the Rust crate `object_store`, without `aws_` and so on.

Its users pass over a name that they do not know, or say no more than that. So names are checked here first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from zambezi.zeps.errors import StoreError

_PREFIX: Final = re.compile(r"^(aws|google|azure_storage|azure)_")
# By the kind of store: the usual names, which an error lists.
_USUAL: Final = {
    "s3": "endpoint region access_key_id secret_access_key session_token skip_signature virtual_hosted_style_request",
    "gs": "service_account service_account_key application_credentials base_url skip_signature",
    "az": "account_name account_key client_id client_secret tenant_id sas_token endpoint use_emulator",
}
_OTHERS: Final = {
    "s3": """bucket bucket_name checksum_algorithm conditional_put container_authorization_token_file
        container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region
        disable_bulk_delete disable_tagging ec2_metadata_disabled endpoint_url endpoint_url_s3 endpoint_url_sts
        imdsv1_fallback metadata_endpoint profile request_payer role_arn role_session_name s3_express
        server_side_encryption sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id sts_endpoint token
        unsigned_payload web_identity_token_file""",
    "gs": "bearer_token bucket bucket_name service_account_path",
    "az": """access_key authority_host authority_id bearer_token container_name credential_type disable_tagging
        encryption_key fabric_cluster_identifier fabric_session_token fabric_token_service_url fabric_workload_host
        federated_token_file identity_endpoint master_key msi_endpoint msi_resource_id object_id sas_key skip_signature
        token use_azure_cli use_fabric_endpoint""",
}
_CLIENT: Final = "allow_http timeout connect_timeout proxy_url"
_OTHER_CLIENT: Final = """allow_invalid_certificates default_content_type http1_only http2_keep_alive_interval
    http2_keep_alive_timeout http2_keep_alive_while_idle http2_max_frame_size http2_only pool_idle_timeout
    pool_max_idle_per_host proxy_ca_certificate proxy_excludes randomize_addresses read_timeout root_certificate
    user_agent"""
_KINDS: Final = {"s3a": "s3", "azure": "az", "abfs": "az", "abfss": "az", "adl": "az"}


def check_options(url: str, names: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise `StoreError` if the store at a URL has no option with one of these names; `also` are further ones.

    >>> check_options("s3://bucket", ["AWS_ENDPOINT_URL", "region"])
    >>> check_options("s3://bucket", ["regoin"])
    Traceback (most recent call last):
    zambezi.zeps.errors.StoreError: s3://bucket: the store has no option 'regoin'; did you mean region?
    """
    scheme = url.partition("://")[0].lower()
    kind = _KINDS.get(scheme, scheme)
    if kind not in _USUAL:
        return
    usual = [*_USUAL[kind].split(), *_CLIENT.split()]
    known = {*usual, *_OTHERS[kind].split(), *_OTHER_CLIENT.split(), *also}
    for name in names:
        plain = _PREFIX.sub("", name.lower())
        if plain not in known:
            similar = difflib.get_close_matches(plain, sorted(known), n=1)
            hint = f"did you mean {similar[0]}?" if similar else f"the usual ones are {', '.join(usual)}"
            raise StoreError(f"{url}: the store has no option {name!a}; {hint}")


def is_option(url: str, name: str, also: Iterable[str] = ()) -> bool:
    """Return whether the store at a URL has an option with this name; `also` are further ones."""
    try:
        check_options(url, [name], also)
    except StoreError:
        return False
    return True
