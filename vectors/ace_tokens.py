#!/usr/bin/env python3
"""Writes ace_tokens.json: an access token of RFC 9203 under AES-CCM-16-128-256, sealed with the package cryptography.

    python3 vectors/ace_tokens.py >vectors/ace_tokens.json
"""

import json
import cryptography
from cryptography.hazmat.primitives.ciphers.aead import AESCCM


def head(major, value):
    """The head of a CBOR item (RFC 8949, section 3)."""
    if value < 24:
        return bytes([major << 5 | value])
    length = next(length for length in (1, 2, 4, 8) if value < 1 << 8 * length)
    return bytes([major << 5 | 23 + length.bit_length()]) + value.to_bytes(length, "big")


def item(value):
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(item, value))
    if isinstance(value, dict):
        return head(5, len(value)) + b"".join(item(key) + item(entry) for key, entry in value.items())
    return head(0, value) if value >= 0 else head(1, -1 - value)


KEY = bytes(range(32))
NONCE = bytes(range(0x40, 0x4D))
SECRET = bytes.fromhex("f9af838368e353e78888e1426bd94e6f")
CLAIMS = {2: "display", 3: "oven", 4: 1800000600, 6: 1800000000, 8: {4: {0: b"\1", 2: SECRET}}, 9: item([["/temp", 1]])}

protected = item({1: 31})
structure = item(["Encrypt0", protected, b""])
sealed = AESCCM(KEY, tag_length=16).encrypt(NONCE, item(CLAIMS), structure)
token = head(6, 16) + item([protected, {5: NONCE}, sealed])
print(json.dumps({
    "source": f"vectors/ace_tokens.py with cryptography {cryptography.__version__}",
    "key": KEY.hex(),
    "claims": item(CLAIMS).hex(),
    "token": token.hex(),
}, indent=1))
