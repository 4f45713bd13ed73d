#!/usr/bin/env python3
"""Writes axiom_records.json: keys and records of groups, computed without any code of Tegmen.

Needs `cryptography` of PyPI. The text that it follows is that of the paper (M. Tiloca, K. Nikitin, S. Raza, "Axiom -
DTLS-based secure IoT group communication", sections 5.3 to 5.6) and of RFC 5246, sections 5, 6.2.3 and 6.3; with a suite
that has no cipher the secret of the individual keys is client_write_MAC_key + server_write_MAC_key.
"""

import hashlib
import hmac
import json
import pathlib
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM


def prf(secret, label, seed, length):
    seed = label + seed
    a, out = seed, b""
    while len(out) < length:
        a = hmac.new(secret, a, hashlib.sha256).digest()
        out += hmac.new(secret, a + seed, hashlib.sha256).digest()
    return out[:length]


SUITES = {"Ccm": (16, 16), "Ccm8": (16, 8), "Gcm": (16, 16), "MacOnly": (32, 32)}


def record(suite, key, iv, number, content):
    kind = b"\x17\xfe\xfd"
    aad = number + kind + struct.pack(">H", len(content))
    tag_len = SUITES[suite][1]
    if suite == "MacOnly":
        body = content + hmac.new(key, aad + content, hashlib.sha256).digest()
    else:
        cipher = AESGCM(key) if suite == "Gcm" else AESCCM(key, tag_length=tag_len)
        body = number + cipher.encrypt(iv + number, content, aad)
    return kind + number + struct.pack(">H", len(body)) + body


def case(suite, epoch, group_id, sender_id, request_tsn, response_tsn, address, content):
    master = hashlib.sha256(b"master" + suite.encode()).digest() + bytes(range(16))
    client, server = hashlib.sha256(b"client").digest(), hashlib.sha256(b"server").digest()
    key_len, _ = SUITES[suite]
    encrypts = suite != "MacOnly"
    block = prf(master, b"key expansion", server + client, 2 * key_len + (8 if encrypts else 0))
    client_key, server_key = block[:key_len], block[key_len : 2 * key_len]
    client_iv, server_iv = block[2 * key_len : 2 * key_len + 4], block[2 * key_len + 4 :]
    individual = prf(client_key + server_key, b"key derivation", address + bytes([sender_id]), key_len)
    number = lambda own, tsn: struct.pack(">HB", epoch, own) + tsn.to_bytes(5, "big")
    return {
        "suite": suite,
        "epoch": epoch,
        "group_id": group_id,
        "sender_id": sender_id,
        "master_secret": master.hex(),
        "client_random": client.hex(),
        "server_random": server.hex(),
        "address": address.hex(),
        "content": content.hex(),
        "request_tsn": request_tsn,
        "request": record(suite, server_key, server_iv, number(sender_id, request_tsn), content).hex(),
        "response_tsn": response_tsn,
        "response": record(suite, individual, client_iv, number(group_id, response_tsn), content[::-1]).hex(),
    }


def main():
    mesh = bytes.fromhex("fd000000000000000000000000000007")
    mapped = bytes.fromhex("00000000000000000000ffffc0000205")
    cases = [
        case(suite, *numbers, address, content)
        for suite in SUITES
        for numbers, address, content in (
            ((1, 7, 3, 0, 0), mesh, b"on"),
            ((0xFFFF, 0, 255, 1000, 4242), mapped, b""),
            ((513, 255, 0, 32767, 65536), mesh, bytes(range(64))),
        )
    ]
    data = {
        "source": "computed by axiom_records.py with cryptography 48 (PyPI), from the paper's text and RFC 5246",
        "license": "MIT OR Apache-2.0",
        "vectors": cases,
    }
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
