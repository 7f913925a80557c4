"""Bodies that MCollective 2.12.5 wrote on Ruby 3.1, with its plugins psk, ssl and aes_security.

The names say the plugin, the serializer (of those that have a choice) and the message. Each request has the id
7a3c3ad3f2d85ecbb3c8e4b5d7b1a002 and is from node3.example.net, at 2023-11-15 12:00 UTC.
"""

from base64 import b64decode

MARSHAL = {
    "psk ping": b64decode(
        "BAh7DzoJYm9keSITBAhJIglwaW5nBjoGRVQ6DXNlbmRlcmlkSSIWbm9kZTMuZXhhbXBsZS5uZXQGOgZFVDoOcmVxdWVzdGlkSSIlN2EzYzNh"
        "ZDNmMmQ4NWVjYmIzYzhlNGI1ZDdiMWEwMDIGOwdUOgtmaWx0ZXJ7CkkiCWZhY3QGOwdUWwBJIg1jZl9jbGFzcwY7B1RbAEkiCmFnZW50BjsH"
        "VFsGSSIMcnBjdXRpbAY7B1RJIg1pZGVudGl0eQY7B1RbAEkiDWNvbXBvdW5kBjsHVFsAOg9jb2xsZWN0aXZlSSIQbWNvbGxlY3RpdmUGOwdU"
        "OgphZ2VudEkiDmRpc2NvdmVyeQY7B1Q6DWNhbGxlcmlkSSIKdWlkPTAGOwdUOgh0dGxpQToMbXNndGltZWwrB8CyVGU6CWhhc2hJIiUxZTQ1"
        "ZjA4MWFkNjQ3NjI1OGY4MjY3YTRkY2E3MjcyNgY7B0Y="
    ),
    "psk pong": b64decode(
        "BAh7CzoNc2VuZGVyaWRJIhZub2RlMy5leGFtcGxlLm5ldAY6BkVUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2Ix"
        "YTAwMgY7BlQ6EHNlbmRlcmFnZW50SSIOZGlzY292ZXJ5BjsGVDoMbXNndGltZWwrB8CyVGU6CWJvZHkiEwQISSIJcG9uZwY6BkVUOgloYXNo"
        "SSIlMGVlZjhlY2MwOTllYWEwYzY3ZGU1ZGNhMjA5ZjBhZjEGOwZG"
    ),
    "psk request": b64decode(
        "BAh7DzoJYm9keSJ5BAh7CToKYWdlbnRJIgxycGN1dGlsBjoGRVQ6C2FjdGlvbkkiDWdldF9mYWN0BjsGVDoLY2FsbGVySSIKdWlkPTAGOwZU"
        "OglkYXRhewc6CWZhY3RJIg1vc2ZhbWlseQY7BlQ6FHByb2Nlc3NfcmVzdWx0c1Q6DXNlbmRlcmlkSSIWbm9kZTMuZXhhbXBsZS5uZXQGOgZF"
        "VDoOcmVxdWVzdGlkSSIlN2EzYzNhZDNmMmQ4NWVjYmIzYzhlNGI1ZDdiMWEwMDIGOwdUOgtmaWx0ZXJ7CkkiCWZhY3QGOwdUWwBJIg1jZl9j"
        "bGFzcwY7B1RbAEkiCmFnZW50BjsHVFsGSSIMcnBjdXRpbAY7B1RJIg1pZGVudGl0eQY7B1RbAEkiDWNvbXBvdW5kBjsHVFsAOg9jb2xsZWN0"
        "aXZlSSIQbWNvbGxlY3RpdmUGOwdUOgphZ2VudEkiDHJwY3V0aWwGOwdUOg1jYWxsZXJpZEkiCnVpZD0wBjsHVDoIdHRsaUE6DG1zZ3RpbWVs"
        "KwfAslRlOgloYXNoSSIlYjRkZmNmYzVhMWViOGY1OGI0NzAxZmFlMzVjZTkwZmIGOwdG"
    ),
    "psk filtered": b64decode(
        "BAh7DzoJYm9keSJkBAh7CToKYWdlbnRJIgxycGN1dGlsBjoGRVQ6C2FjdGlvbkkiDWdldF9mYWN0BjsGVDoLY2FsbGVySSIKdWlkPTAGOwZU"
        "OglkYXRhewY6FHByb2Nlc3NfcmVzdWx0c0Y6DXNlbmRlcmlkSSIWbm9kZTMuZXhhbXBsZS5uZXQGOgZFVDoOcmVxdWVzdGlkSSIlN2EzYzNh"
        "ZDNmMmQ4NWVjYmIzYzhlNGI1ZDdiMWEwMDIGOwdUOgtmaWx0ZXJ7CkkiCWZhY3QGOwdUWwZ7CDoJZmFjdEkiDW9zZmFtaWx5BjsHVDoKdmFs"
        "dWVJIgtEZWJpYW4GOwdUOg1vcGVyYXRvckkiBz09BjsHVEkiDWNmX2NsYXNzBjsHVFsGSSILYXBhY2hlBjsHVEkiCmFnZW50BjsHVFsGSSIM"
        "cGFja2FnZQY7B1RJIg1pZGVudGl0eQY7B1RbB0kiCXdlYjEGOwdUSSIKL15kYi8GOwdUSSINY29tcG91bmQGOwdUWwZbCXsGSSIOc3RhdGVt"
        "ZW50BjsHVEkiCGE9MQY7B1R7BkkiCGFuZAY7B1RJIghhbmQGOwdUewZJIghub3QGOwdUSSIIbm90BjsHVHsGQB5JIgZiBjsHVDoPY29sbGVj"
        "dGl2ZUkiEG1jb2xsZWN0aXZlBjsHVDoKYWdlbnRJIgxwYWNrYWdlBjsHVDoNY2FsbGVyaWRJIgp1aWQ9MAY7B1Q6CHR0bGlBOgxtc2d0aW1l"
        "bCsHwLJUZToJaGFzaEkiJWExNTVjODFhN2IyZTllYTI1N2EzN2ViNmE4Nzg2NzRhBjsHRg=="
    ),
    "psk reply": b64decode(
        "BAh7CzoNc2VuZGVyaWRJIhZub2RlMy5leGFtcGxlLm5ldAY6BkVUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2Ix"
        "YTAwMgY7BlQ6EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfAslRlOglib2R5Il0ECHsIOg9zdGF0dXNjb2RlaQA6DnN0"
        "YXR1c21zZ0kiB09LBjoGRVQ6CWRhdGF7BzoJZmFjdEkiDW9zZmFtaWx5BjsHVDoKdmFsdWVJIgtEZWJpYW4GOwdUOgloYXNoSSIlZWZhNTk2"
        "OGQ1MGQ4MDZmZDg5ZGQ0ZGQ4YzgyMmI1ZjgGOwZG"
    ),
    "psk error": b64decode(
        "BAh7CzoNc2VuZGVyaWRJIhZub2RlMy5leGFtcGxlLm5ldAY6BkVUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2Ix"
        "YTAwMgY7BlQ6EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfAslRlOglib2R5IkgECHsIOg9zdGF0dXNjb2RlaQY6DnN0"
        "YXR1c21zZ0kiG05vIHN1Y2ggcGFja2FnZTogw7xiZXIGOgZFVDoJZGF0YXsAOgloYXNoSSIlZjBkMDdiMTExMmNlY2EwM2NiMzg0YzQ3YTYz"
        "NzhkMGYGOwZG"
    ),
    "ssl marshal request": b64decode(
        "BAh7DzoJYm9keSIBngQIewg6DHNzbF9tc2d7CToKYWdlbnRJIgxycGN1dGlsBjoGRVQ6C2FjdGlvbkkiDWdldF9mYWN0BjsHVDoLY2FsbGVy"
        "SSIKdWlkPTAGOwdUOglkYXRhewc6CWZhY3RJIg1vc2ZhbWlseQY7B1Q6FHByb2Nlc3NfcmVzdWx0c1Q6DHNzbF90dGxpQToQc3NsX21zZ3Rp"
        "bWVsKwfAslRlOg1zZW5kZXJpZEkiFm5vZGUzLmV4YW1wbGUubmV0BjoGRVQ6DnJlcXVlc3RpZEkiJTdhM2MzYWQzZjJkODVlY2JiM2M4ZTRi"
        "NWQ3YjFhMDAyBjsHVDoLZmlsdGVyewpJIglmYWN0BjsHVFsASSINY2ZfY2xhc3MGOwdUWwBJIgphZ2VudAY7B1RbBkkiDHJwY3V0aWwGOwdU"
        "SSINaWRlbnRpdHkGOwdUWwBJIg1jb21wb3VuZAY7B1RbADoPY29sbGVjdGl2ZUkiEG1jb2xsZWN0aXZlBjsHVDoKYWdlbnRJIgxycGN1dGls"
        "BjsHVDoNY2FsbGVyaWRJIg1jZXJ0PWFubgY7B1Q6CHR0bGlBOgxtc2d0aW1lbCsHwLJUZToJaGFzaEkiAa9tckNTRzlzYVFva1FTSDdocHFz"
        "a01pUVlqUlFlbXl4clY3UEVocURuQndUV2JtdVUrU1REczhubzRneUsKUEpib1VDa0c2b2R5bnFUVHFKbnhpbTZxaW1CNENQR01sWFMxK1Zx"
        "L29CNG1wWjFXY1dpdDdtL2N1YXRQCm51bkhhU1dOWDBMSzlBdnZIZ1NBd1NCTzhhZW5UUittbGdITzFLemJNTUxYTWJiSTlETT0KBjsHRg=="
    ),
    "ssl marshal filtered": b64decode(
        "BAh7DzoJYm9keSIBngQIewg6DHNzbF9tc2d7CToKYWdlbnRJIgxycGN1dGlsBjoGRVQ6C2FjdGlvbkkiDWdldF9mYWN0BjsHVDoLY2FsbGVy"
        "SSIKdWlkPTAGOwdUOglkYXRhewc6CWZhY3RJIg1vc2ZhbWlseQY7B1Q6FHByb2Nlc3NfcmVzdWx0c1Q6DHNzbF90dGxpQToQc3NsX21zZ3Rp"
        "bWVsKwfAslRlOg1zZW5kZXJpZEkiFm5vZGUzLmV4YW1wbGUubmV0BjoGRVQ6DnJlcXVlc3RpZEkiJTdhM2MzYWQzZjJkODVlY2JiM2M4ZTRi"
        "NWQ3YjFhMDAyBjsHVDoLZmlsdGVyewpJIglmYWN0BjsHVFsGewg6CWZhY3RJIg1vc2ZhbWlseQY7B1Q6CnZhbHVlSSILRGViaWFuBjsHVDoN"
        "b3BlcmF0b3JJIgc9PQY7B1RJIg1jZl9jbGFzcwY7B1RbBkkiC2FwYWNoZQY7B1RJIgphZ2VudAY7B1RbBkkiDHBhY2thZ2UGOwdUSSINaWRl"
        "bnRpdHkGOwdUWwdJIgl3ZWIxBjsHVEkiCi9eZGIvBjsHVEkiDWNvbXBvdW5kBjsHVFsGWwl7BkkiDnN0YXRlbWVudAY7B1RJIghhPTEGOwdU"
        "ewZJIghhbmQGOwdUSSIIYW5kBjsHVHsGSSIIbm90BjsHVEkiCG5vdAY7B1R7BkAeSSIGYgY7B1Q6D2NvbGxlY3RpdmVJIhBtY29sbGVjdGl2"
        "ZQY7B1Q6CmFnZW50SSIMcGFja2FnZQY7B1Q6DWNhbGxlcmlkSSINY2VydD1hbm4GOwdUOgh0dGxpQToMbXNndGltZWwrB8CyVGU6CWhhc2hJ"
        "IgGvbXJDU0c5c2FRb2tRU0g3aHBxc2tNaVFZalJRZW15eHJWN1BFaHFEbkJ3VFdibXVVK1NURHM4bm80Z3lLClBKYm9VQ2tHNm9keW5xVFRx"
        "Sm54aW02cWltQjRDUEdNbFhTMStWcS9vQjRtcFoxV2NXaXQ3bS9jdWF0UApudW5IYVNXTlgwTEs5QXZ2SGdTQXdTQk84YWVuVFIrbWxnSE8x"
        "S3piTU1MWE1iYkk5RE09CgY7B0Y="
    ),
    "ssl marshal ping": b64decode(
        "BAh7DzoJYm9keSI9BAh7CDoMc3NsX21zZ0kiCXBpbmcGOgZFVDoMc3NsX3R0bGlBOhBzc2xfbXNndGltZWwrB8CyVGU6DXNlbmRlcmlkSSIW"
        "bm9kZTMuZXhhbXBsZS5uZXQGOgZFVDoOcmVxdWVzdGlkSSIlN2EzYzNhZDNmMmQ4NWVjYmIzYzhlNGI1ZDdiMWEwMDIGOwdUOgtmaWx0ZXJ7"
        "CkkiCWZhY3QGOwdUWwBJIg1jZl9jbGFzcwY7B1RbAEkiCmFnZW50BjsHVFsGSSIMcnBjdXRpbAY7B1RJIg1pZGVudGl0eQY7B1RbAEkiDWNv"
        "bXBvdW5kBjsHVFsAOg9jb2xsZWN0aXZlSSIQbWNvbGxlY3RpdmUGOwdUOgphZ2VudEkiDmRpc2NvdmVyeQY7B1Q6DWNhbGxlcmlkSSINY2Vy"
        "dD1hbm4GOwdUOgh0dGxpQToMbXNndGltZWwrB8CyVGU6CWhhc2hJIgGvQmh4NnM1Z3B5RW9QSm9jellqNDM5RkFHMXo3Qis3anN0aWt2Y3hu"
        "QUg4MDE0cXh4Sm5pM2JsZGU0SHB2ClBPRDJZQlFsb29VbDRQa0lZaEhCakJmZE5qZU9UcEZxa0MzMmc3UzNEMFBkcFNId295eG02aHBnWXJO"
        "MQpSakNSazRSZklNYVZQQUppcW5LakVQVDkxRisrME9sTEpRbHlxTklDWEtYV2RvVVk0Smc9CgY7B0Y="
    ),
    "ssl marshal reply": b64decode(
        "BAh7CzoNc2VuZGVyaWRJIhZub2RlMy5leGFtcGxlLm5ldAY6BkVUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2Ix"
        "YTAwMgY7BlQ6EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfAslRlOglib2R5Il0ECHsIOg9zdGF0dXNjb2RlaQA6DnN0"
        "YXR1c21zZ0kiB09LBjoGRVQ6CWRhdGF7BzoJZmFjdEkiDW9zZmFtaWx5BjsHVDoKdmFsdWVJIgtEZWJpYW4GOwdUOgloYXNoSSIBr25VbU0w"
        "akp0cE9VeERHdGQzeXJHYmFId296Y3hmZWNWelF6L2VqWUZXUjlxTXFUN2s2SFY5NG9SbHFBWQpyMFl6amIwdXhjMGYxRmVFT21CRHhEZ25S"
        "VWlMYTN0dlZRKytXMXBGZHVwRk9KMG1sSHVpOHZIbmJVcC8KNUdaL3NqMDUxaWJ1clRacGlrNFoxWTdjVGlDazhnUTRHYjBVU3dPUTlOMUht"
        "Zkh2N2cwPQoGOwZG"
    ),
    "ssl marshal error": b64decode(
        "BAh7CzoNc2VuZGVyaWRJIhZub2RlMy5leGFtcGxlLm5ldAY6BkVUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2Ix"
        "YTAwMgY7BlQ6EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfAslRlOglib2R5IkgECHsIOg9zdGF0dXNjb2RlaQY6DnN0"
        "YXR1c21zZ0kiG05vIHN1Y2ggcGFja2FnZTogw7xiZXIGOgZFVDoJZGF0YXsAOgloYXNoSSIBr2dlaW95cGxOdHhUOUNxOG00VC9Za05BTDQz"
        "dDdLZy9zS2V2ay9vYnVNNnRMT1B2Q05HZVhRS2EwNWo1Rwo0SVRvTTJtZGNkMDNpRUErc2dranRZWHZRWXNMU29lcWFXTDIzSkVIQlNjRHRD"
        "bkp5VFM0ZjBRLzlCVXYKN3lTUllnTVlOeWpCd0ZBNjUzaUlkYm5Ra1BEVlhkWDQ1c29NbmdYT0lmdmt4VWpnUUM4PQoGOwZG"
    ),
    "ssl marshal pong": b64decode(
        "BAh7CzoNc2VuZGVyaWRJIhZub2RlMy5leGFtcGxlLm5ldAY6BkVUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2Ix"
        "YTAwMgY7BlQ6EHNlbmRlcmFnZW50SSIOZGlzY292ZXJ5BjsGVDoMbXNndGltZWwrB8CyVGU6CWJvZHkiEwQISSIJcG9uZwY6BkVUOgloYXNo"
        "SSIBr0ZITnM3dzlNazA2VEM2ajBYbm5sUXJacm5MMHhmYU9pR0xHTGZXd01zQWRwWHJIYWU5ZWpQRW5ucEdnaApuY1F2UjBYNmc0ekx5Nndl"
        "ZzVhbmxsK0NWV0lkaXlURHNTcXNFYXF1UUkySE5YdytsU2NnYXlZQUtwNjgKOTdrOUdEUmtOeUEvdkpUZ0dxekE4S0VVZ0UycXROeC91Tmk3"
        "c25FVG5FSmJLYUpuTVNBPQoGOwZG"
    ),
    "aes marshal request": b64decode(
        "BAh7DzoJYm9keUkiAdxXd0lTdm5Sa0VjdDJiTzBZOGt4T2JjRE1LWTQxa1hKc2wvMW00VHN2YmlvNDNaSEtXVk1LTEJFb1YrMUQKRWdSdnk2"
        "eTR5cXg2RjJmZk9NUGhvMFpQWjY4YmlBTFN0YUpUTFR5MkVyL2M4WVlIOWVMNkpTZENiZjRLCjl4dG5GZnhvQVZMVUxkdDV0WkRZQjFid0lI"
        "aEk1MkR6NmNhbmVuQUx4U3FRNWF3SHJBRzRoeEdza0xSNgpqTUpPeE5peGw1bDhtZUQvMGZCNFk4Qit6Q2VweEVBNHFRPT0KBjoGRUY6DXNl"
        "bmRlcmlkSSIWbm9kZTMuZXhhbXBsZS5uZXQGOwZUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2IxYTAwMgY7BlQ6"
        "C2ZpbHRlcnsKSSIJZmFjdAY7BlRbAEkiDWNmX2NsYXNzBjsGVFsASSIKYWdlbnQGOwZUWwZJIgxycGN1dGlsBjsGVEkiDWlkZW50aXR5BjsG"
        "VFsASSINY29tcG91bmQGOwZUWwA6D2NvbGxlY3RpdmVJIhBtY29sbGVjdGl2ZQY7BlQ6CmFnZW50SSIMcnBjdXRpbAY7BlQ6DWNhbGxlcmlk"
        "SSINY2VydD1hbm4GOwZUOgh0dGxpQToMbXNndGltZWwrB8CyVGU6C3NzbGtleUkiAa9NSTh3SkJvdnNFaW5rLy8xODBoYnlVdlU5bEx3cGl3"
        "a1pPSUJhR2dLakNzTTdrUjZTcXNqTkR3WDhRejIKaGZWL2VnYmtxU1VXcVV6Sk9vL2V6enU1bURjci9sTG1vUlBvQmkyMVlXZ04rNHAzSWNG"
        "cmcveVFXZzBiCnBHK21DT2tqakxXZEFHdFY3Vk5oV0NlSDQ4bTFaUCtodWh5c2Q2MTlFd3lPKzRuMk0rWT0KBjsGRg=="
    ),
    "aes marshal reply": b64decode(
        "BAh7CzoNc2VuZGVyaWRJIhZub2RlMy5leGFtcGxlLm5ldAY6BkVUOg5yZXF1ZXN0aWRJIiU3YTNjM2FkM2YyZDg1ZWNiYjNjOGU0YjVkN2Ix"
        "YTAwMgY7BlQ6EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfAslRlOglib2R5SSIBg2Z5Zy9KTHBrcVR3cFVVNnJhbkxZ"
        "dVNWblE0UlJVYzZic3BZbWYwNnRjYjFjRzlYallUYyt2Y3lHQTl0dwpqNVpEaGhTam5oN0lkTytYNWZJdG5weVg0MnV5ckVzbWtNQmttbnEw"
        "cDhFclNHQTFrY3duc2RuZ1BQRDUKdlFyZWlBSzYKBjsGRjoLc3Nsa2V5SSIBr0J3SStXbUtteFhPR3p0bUUxU2d4azlWaEF4MG4vL0MrWDZ4"
        "UW5mNmJLamZoeGk4c29GeThHTFpQK0puOAp2SzBCZFFHd3FkeGxESkVVS0xIQjRzLzBEM05tdnZuMXBiUUVKcEdtRGMrTG1OVzlJenVaOE5j"
        "RUdoYlYKbHZ6ZUpZQkhpRHJiM1RqYTVlSkZqRnEwREl4YjBFRVBxaS96Uit0VElablcxRzVnY0tvPQoGOwZG"
    ),
}

YAML = {
    "ssl yaml request": b"""\
---
:body: |
  ---
  :ssl_msg:
    :agent: rpcutil
    :action: get_fact
    :caller: uid=0
    :data:
      :fact: osfamily
      :process_results: true
  :ssl_ttl: 60
  :ssl_msgtime: 1700049600
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:filter:
  fact: []
  cf_class: []
  agent:
  - rpcutil
  identity: []
  compound: []
:collective: mcollective
:agent: rpcutil
:callerid: cert=ann
:ttl: 60
:msgtime: 1700049600
:hash: |
  I2pgF8E65DlbKpDV8/StCzzcRaG+GLjpTUJu6izos9jSO9FzZfKh/+MkQR0e
  bs77FJlRiIIlHkGEd86dGb795OFADMrXhOT2GRJPkD+8SDkeXdEhxNwEVLDr
  M75OV6Stt2sudYwUd6SZb60cnZUNOPkql7uDaH51dRMI8s5wwuc=
""",
    "ssl yaml filtered": b"""\
---
:body: |
  ---
  :ssl_msg:
    :agent: rpcutil
    :action: get_fact
    :caller: uid=0
    :data:
      :fact: osfamily
      :process_results: true
  :ssl_ttl: 60
  :ssl_msgtime: 1700049600
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:filter:
  fact:
  - :fact: osfamily
    :value: Debian
    :operator: "=="
  cf_class:
  - apache
  agent:
  - package
  identity:
  - web1
  - "/^db/"
  compound:
  - - statement: a=1
    - and: and
    - not: not
    - statement: b
:collective: mcollective
:agent: package
:callerid: cert=ann
:ttl: 60
:msgtime: 1700049600
:hash: |
  I2pgF8E65DlbKpDV8/StCzzcRaG+GLjpTUJu6izos9jSO9FzZfKh/+MkQR0e
  bs77FJlRiIIlHkGEd86dGb795OFADMrXhOT2GRJPkD+8SDkeXdEhxNwEVLDr
  M75OV6Stt2sudYwUd6SZb60cnZUNOPkql7uDaH51dRMI8s5wwuc=
""",
    "ssl yaml ping": b"""\
---
:body: |
  ---
  :ssl_msg: ping
  :ssl_ttl: 60
  :ssl_msgtime: 1700049600
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:filter:
  fact: []
  cf_class: []
  agent:
  - rpcutil
  identity: []
  compound: []
:collective: mcollective
:agent: discovery
:callerid: cert=ann
:ttl: 60
:msgtime: 1700049600
:hash: |
  ZaCIQh1kv8pbwFhGnYPZfGqP3nTY28ChUk+pQtC5+AH5IkU7efv2DKn5JWDC
  KcPu7UXRhWmzQMLEuGi/rTtmt43jjYyiWuQtKZHnrgoCkuvN/HvOCnNmeEd/
  0m2/I8zfmkGtXlCh7GarjaxSsTgGREZpbbLnwBZHxdrtNFzK/nY=
""",
    "ssl yaml reply": b"""\
---
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:senderagent: rpcutil
:msgtime: 1700049600
:body: |
  ---
  :statuscode: 0
  :statusmsg: OK
  :data:
    :fact: osfamily
    :value: Debian
:hash: |
  LTzZycwmqkiwjijhU+nYSzoZRca7jtoXKLj1BJvqyUV6dwRRIc9iL6DXNye6
  pJHmk3roaWl6hkjV+dCqOhhjG1TC67Sb0s0IhjCBaEo5PjbEcb56WoH/IBGU
  fdoEZHO3ERvJrJ5YNVx4fGUeSExWqDID1eU2lG0+gnX0d3XKEiU=
""",
    "ssl yaml error": """\
---
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:senderagent: rpcutil
:msgtime: 1700049600
:body: |
  ---
  :statuscode: 1
  :statusmsg: 'No such package: über'
  :data: {}
:hash: |
  hgMmpRD3do+zTuUtX9793lQjcAXh8c+xcEQ3AJdcf9xWXixYKD7Hu7HCo2MD
  pu0nSkTu12Z/g9uQupp1owbLDTh//RpkymSr6xsYrisKs+5iXlAQfbBnNepy
  UuosXrwLsD025nQu1nqznIM3JuIvpe1QUBKaWtns97A+vrI/Cj4=
""".encode(),
    "ssl yaml pong": b"""\
---
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:senderagent: discovery
:msgtime: 1700049600
:body: "--- pong\\n"
:hash: |
  DBNCVkhF2K4ypT4L5G7vU4EDnPNvR0crO0lQ84HLNP8HVxwdpxaL065Z+8up
  NDewpP2TGrfXmwhjauevxC2Ah1ZbkE0Ziqu3X98BMie/hAaqgB5fpqb7xFXD
  J3nrb3VSaF2HrOUnY/M9HLw4eiSZiypBdsgc2IAi2o4tERNDxmo=
""",
    "aes yaml request": b"""\
---
:body: |
  fbcfGngsKY6ZSmrH7vUy+wtFfkHeLTZDydzmzQEdEAvdFqCsAxqW2pjrCS+w
  7x1BIxYIY8K5jKPLh7tIOM9243RtTKMDdJqU9oTOjnPpLqqfbRdRZPByb/Ja
  F+pcIUgswRVGPCSqloxLofGroaNiyhskyIdsDrBtK3HvEjE9MK/nNJ5eCv4L
  1ggIbx6I+xRsGWiwWC74/hb9cYRj3kbbR1+/zi8DEicrkl+CQ53G1v0=
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:filter:
  fact: []
  cf_class: []
  agent:
  - rpcutil
  identity: []
  compound: []
:collective: mcollective
:agent: rpcutil
:callerid: cert=ann
:ttl: 60
:msgtime: 1700049600
:sslkey: |
  IWHhkBEo8ADPVGtNBbL8e9wBYW/XXj7Xwjga4UGYaEJAs2Jxk5D2auq3bpUY
  F6iUjaL0Ucb5hqlfiLH5WQyNeY2Px3ChR3nSiaBITY4CsYB6yIa/tq9b8qRF
  dqSEyE9yuXlS8cVcqAzGBhWM+bnKdRA+OP/Cw7VJJGe+W/ig2g4=
""",
    "aes yaml reply": b"""\
---
:senderid: node3.example.net
:requestid: 7a3c3ad3f2d85ecbb3c8e4b5d7b1a002
:senderagent: rpcutil
:msgtime: 1700049600
:body: |
  LJaTOqLObHD93EJZ2iuVt06QeGCmSBXG9vioOPTqT17cbsu9H1ibO5+i5FC1
  yQ2U9NjoQ1X97n+GW90aoHrQJPQzYciKySBa5eFnjjKHTP8=
:sslkey: |
  0VCDLpe06+N5zCrmy8Up+nJlIxKgOVAdjU2n5cWt5rwOFllWQI7KMVEVczRx
  oG+jsTt42l8BH4Wbtvy508Y/UbT+Uhy89PgvfcwHXQq6uDmaeAHDSUmQT7a5
  oxx4FDGGMaNBOhh2KLYmc2x1xU9xvnOJA9cU5GkX/EUpbOWe3EA=
""",
}

BODIES = {**MARSHAL, **YAML}

# Two daemons (mcollectived 2.12.5 with psk) and `mco rpc rpcutil get_fact fact=os`, then the reply to
# `mco inventory node1`: topics and bodies, in the order of the journal.
DAEMONS = [
    (
        "mcollective discovery",
        b64decode(
            "BAh7DzoJYm9keSITBAhJIglwaW5nBjoGRVQ6DXNlbmRlcmlkSSILY2xpZW50BjoGRVQ6DnJlcXVlc3RpZEkiJWVjMmZiMGE1YWQ1MzVm"
            "N2VhN2U4NjE4OTM1NWNhZWZhBjsHRjoLZmlsdGVyewtJIglmYWN0BjsHVFsASSINY2ZfY2xhc3MGOwdUWwBJIgphZ2VudAY7B1RbBkki"
            "DHJwY3V0aWwGOwdUSSINaWRlbnRpdHkGOwdUWwBJIg1jb21wb3VuZAY7B1RbAEkiD2NvbGxlY3RpdmUGOwdUSSIQbWNvbGxlY3RpdmUG"
            "OwdUOg9jb2xsZWN0aXZlQBY6CmFnZW50SSIOZGlzY292ZXJ5BjsHVDoNY2FsbGVyaWRJIgp1aWQ9MAY7B1Q6CHR0bGlBOgxtc2d0aW1l"
            "bCsHyYH6ajoJaGFzaEkiJWEyZDYwYjEyYTAxMGU3MWNkZGU0NGFjNDBlYzIwYzQxBjsHRg=="
        ),
    ),
    (
        "mcollective reply client 16961",
        b64decode(
            "BAh7CzoNc2VuZGVyaWRJIgpub2RlMQY6BkVUOg5yZXF1ZXN0aWRJIiVlYzJmYjBhNWFkNTM1ZjdlYTdlODYxODkzNTVjYWVmYQY7BkY6"
            "EHNlbmRlcmFnZW50SSIOZGlzY292ZXJ5BjsGVDoMbXNndGltZWwrB8mB+mo6CWJvZHkiEwQISSIJcG9uZwY6BkVUOgloYXNoSSIlODJi"
            "OGE0ZDgwYjhhNTk1ZGYxOWFlNWI5MzZhNGExMWQGOwZG"
        ),
    ),
    (
        "mcollective reply client 16961",
        b64decode(
            "BAh7CzoNc2VuZGVyaWRJIgpub2RlMgY6BkVUOg5yZXF1ZXN0aWRJIiVlYzJmYjBhNWFkNTM1ZjdlYTdlODYxODkzNTVjYWVmYQY7BkY6"
            "EHNlbmRlcmFnZW50SSIOZGlzY292ZXJ5BjsGVDoMbXNndGltZWwrB8mB+mo6CWJvZHkiEwQISSIJcG9uZwY6BkVUOgloYXNoSSIlODJi"
            "OGE0ZDgwYjhhNTk1ZGYxOWFlNWI5MzZhNGExMWQGOwZG"
        ),
    ),
    (
        "mcollective nodes node1",
        b64decode(
            "BAh7DzoJYm9keSJzBAh7CToKYWdlbnRJIgxycGN1dGlsBjoGRVQ6C2FjdGlvbkkiDWdldF9mYWN0BjsGRjoLY2FsbGVySSIKdWlkPTAG"
            "OwZUOglkYXRhewc6CWZhY3RJIgdvcwY7BlQ6FHByb2Nlc3NfcmVzdWx0c1Q6DXNlbmRlcmlkSSILY2xpZW50BjoGRVQ6DnJlcXVlc3Rp"
            "ZEkiJWY4N2NjYWUwNjVjZjUxNDg4NzE3ZmYxYjI5ZGYxNTBlBjsHRjoLZmlsdGVyewpJIglmYWN0BjsHVFsASSINY2ZfY2xhc3MGOwdU"
            "WwBJIgphZ2VudAY7B1RbBkkiDHJwY3V0aWwGOwdUSSINaWRlbnRpdHkGOwdUWwBJIg1jb21wb3VuZAY7B1RbADoPY29sbGVjdGl2ZUki"
            "EG1jb2xsZWN0aXZlBjsHVDoKYWdlbnRAEDoNY2FsbGVyaWRJIgp1aWQ9MAY7B1Q6CHR0bGlBOgxtc2d0aW1lbCsHy4H6ajoJaGFzaEki"
            "JWNjNDM2ZTAzNjA4Mjk3YzlkYThmN2UwMmExMTNlNTlmBjsHRg=="
        ),
    ),
    (
        "mcollective nodes node2",
        b64decode(
            "BAh7DzoJYm9keSJzBAh7CToKYWdlbnRJIgxycGN1dGlsBjoGRVQ6C2FjdGlvbkkiDWdldF9mYWN0BjsGRjoLY2FsbGVySSIKdWlkPTAG"
            "OwZUOglkYXRhewc6CWZhY3RJIgdvcwY7BlQ6FHByb2Nlc3NfcmVzdWx0c1Q6DXNlbmRlcmlkSSILY2xpZW50BjoGRVQ6DnJlcXVlc3Rp"
            "ZEkiJWY4N2NjYWUwNjVjZjUxNDg4NzE3ZmYxYjI5ZGYxNTBlBjsHRjoLZmlsdGVyewpJIglmYWN0BjsHVFsASSINY2ZfY2xhc3MGOwdU"
            "WwBJIgphZ2VudAY7B1RbBkkiDHJwY3V0aWwGOwdUSSINaWRlbnRpdHkGOwdUWwBJIg1jb21wb3VuZAY7B1RbADoPY29sbGVjdGl2ZUki"
            "EG1jb2xsZWN0aXZlBjsHVDoKYWdlbnRAEDoNY2FsbGVyaWRJIgp1aWQ9MAY7B1Q6CHR0bGlBOgxtc2d0aW1lbCsHy4H6ajoJaGFzaEki"
            "JWNjNDM2ZTAzNjA4Mjk3YzlkYThmN2UwMmExMTNlNTlmBjsHRg=="
        ),
    ),
    (
        "mcollective reply client 16961",
        b64decode(
            "BAh7CzoNc2VuZGVyaWRJIgpub2RlMQY6BkVUOg5yZXF1ZXN0aWRJIiVmODdjY2FlMDY1Y2Y1MTQ4ODcxN2ZmMWIyOWRmMTUwZQY7BkY6"
            "EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfLgfpqOglib2R5IksECHsIOg9zdGF0dXNjb2RlaQA6DnN0YXR1c21z"
            "Z0kiB09LBjoGRVQ6CWRhdGF7BzoJZmFjdEkiB29zBjsHVDoKdmFsdWUwOgloYXNoSSIlOWQ0NTUwMzhjNWUyMTZkNjJhY2E0YzgwZThi"
            "YmM5MzkGOwZG"
        ),
    ),
    (
        "mcollective reply client 16961",
        b64decode(
            "BAh7CzoNc2VuZGVyaWRJIgpub2RlMgY6BkVUOg5yZXF1ZXN0aWRJIiVmODdjY2FlMDY1Y2Y1MTQ4ODcxN2ZmMWIyOWRmMTUwZQY7BkY6"
            "EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfLgfpqOglib2R5IksECHsIOg9zdGF0dXNjb2RlaQA6DnN0YXR1c21z"
            "Z0kiB09LBjoGRVQ6CWRhdGF7BzoJZmFjdEkiB29zBjsHVDoKdmFsdWUwOgloYXNoSSIlOWQ0NTUwMzhjNWUyMTZkNjJhY2E0YzgwZThi"
            "YmM5MzkGOwZG"
        ),
    ),
    (
        "mcollective reply client 17211",
        b64decode(
            "BAh7CzoNc2VuZGVyaWRJIgpub2RlMQY6BkVUOg5yZXF1ZXN0aWRJIiVhOGY0N2I3M2JlY2M1YmQyODlkZTdhNGNkNTNiMTkzOAY7BkY6"
            "EHNlbmRlcmFnZW50SSIMcnBjdXRpbAY7BlQ6DG1zZ3RpbWVsKwfOgfpqOglib2R5IgIoAQQIewg6D3N0YXR1c2NvZGVpADoOc3RhdHVz"
            "bXNnSSIHT0sGOgZFVDoJZGF0YXsMOgthZ2VudHNbCEkiCWJsb2IGOwdUSSIOZGlzY292ZXJ5BjsHVEkiDHJwY3V0aWwGOwdUOgpmYWN0"
            "c3sAOgxjbGFzc2VzWwA6DHZlcnNpb25JIgsyLjEyLjUGOwdUOhRtYWluX2NvbGxlY3RpdmVJIhBtY29sbGVjdGl2ZQY7B1Q6EGNvbGxl"
            "Y3RpdmVzWwZJIhBtY29sbGVjdGl2ZQY7B1Q6EWRhdGFfcGx1Z2luc1sJSSIPYWdlbnRfZGF0YQY7B0ZJIhRjb2xsZWN0aXZlX2RhdGEG"
            "OwdGSSIOZmFjdF9kYXRhBjsHRkkiD2ZzdGF0X2RhdGEGOwdGOgloYXNoSSIlYTZkYjk2Njc1NjY0OTRjOTRkY2MxYzM4YjQwMTBlYWMG"
            "OwZG"
        ),
    ),
]
