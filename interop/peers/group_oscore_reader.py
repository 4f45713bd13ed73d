#!/usr/bin/env python3
"""Opens messages that are protected with Group OSCORE, with the keys of the group: group_oscore_reader.py SESSION.json

It shares no code with Tegmen and none with aiocoap. It follows the text of RFC 10021, sections 2.1 to 4.2, RFC 8613, sections 3.2.1, 5.2
and 6.1, RFC 9338, section 3.3, RFC 8032, section 5.1.5, and RFC 7748, section 4.1. Needs `cryptography` of PyPI.

SESSION.json: {"group": {"curve", "aead", "group_encryption", "gid", "master_secret", "master_salt", "group_manager_credential"},
"members": {ID: {"credential", "private"}}, "messages": [{"datagram", "from", "to", "answers"}]}, with bytes in hexadecimal digits.
"answers" is the number of the request that a response answers, and null for a request; "to" matters in the pairwise mode alone. A member
without a credential is the Deterministic Client (draft-ietf-core-cacheable-oscore-02, sections 3.4.2 and 3.4.4).

Writes a line of JSON for each message: its mode, its sender, and what was encrypted. Ends with 1 if a message does not open.
"""

import hashlib
import hmac
import json
import sys

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils, x25519
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM
from cryptography.hazmat.primitives.hashes import SHA256

# The number in the registry of COSE, bytes of the nonce, and bytes of the tag.
AEADS = {
    "AES-CCM-16-64-128": (10, 13, 8),
    "AES-CCM-16-128-128": (30, 13, 16),
    "AES-CCM-64-64-128": (12, 7, 8),
    "AES-CCM-64-128-128": (32, 7, 16),
    "A128GCM": (1, 12, 16),
}
SIGNATURES = {"Ed25519": -8, "P-256": -7}
ECDH_SS_HKDF_256 = -27
KEY_LEN = 16
SIGNATURE_LEN = 64
P = 2**255 - 19
OSCORE, REQUEST_HASH = 9, 548


def head(major, number):
    for bits, info in ((8, 24), (16, 25), (32, 26)):
        if number < 24:
            return bytes([major << 5 | number])
        if number < 1 << bits:
            return bytes([major << 5 | info]) + number.to_bytes(bits // 8, "big")
    raise ValueError(number)


def cbor(value):
    """RFC 8949, section 3."""
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value)) + value.encode()
    return head(4, len(value)) + b"".join(cbor(item) for item in value)


def uncbor(data):
    """A value, and what is behind it."""
    major, info, data = data[0] >> 5, data[0] & 31, data[1:]
    if info >= 24:
        size = 1 << (info - 24)
        info, data = int.from_bytes(data[:size], "big"), data[size:]
    if major == 0:
        return info, data
    if major == 1:
        return -1 - info, data
    if major in (2, 3):
        return (data[:info] if major == 2 else data[:info].decode()), data[info:]
    pairs = {}
    for _ in range(info):
        key, data = uncbor(data)
        pairs[key], data = uncbor(data)
    return pairs, data


def hkdf(salt, secret, info, length):
    """RFC 5869."""
    key = hmac.new(salt, secret, hashlib.sha256).digest()
    out = block = b""
    while len(out) < length:
        block = hmac.new(key, block + info + bytes([len(out) // 32 + 1]), hashlib.sha256).digest()
        out += block
    return out[:length]


def message(datagram):
    """The values of the options, and the payload (RFC 7252, section 3)."""
    at, number, options = 4 + (datagram[0] & 15), 0, {}
    while at < len(datagram) and datagram[at] != 0xFF:
        lengths = []
        byte, at = datagram[at], at + 1
        for nibble in (byte >> 4, byte & 15):
            if nibble == 13:
                nibble, at = datagram[at] + 13, at + 1
            elif nibble == 14:
                nibble, at = int.from_bytes(datagram[at : at + 2], "big") + 269, at + 2
            lengths.append(nibble)
        number += lengths[0]
        options[number] = datagram[at : at + lengths[1]]
        at += lengths[1]
    return options, datagram[at + 1 :]


def option(value):
    """RFC 8613, section 6.1, with the Group Flag."""
    flags, rest = (value[0], value[1:]) if value else (0, b"")
    number, rest = rest[: flags & 7], rest[flags & 7 :]
    gid = None
    if flags & 0x10:
        gid, rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
    return bool(flags & 0x20), number or None, gid, rest if flags & 8 else None


class Group:
    def __init__(self, told, members):
        of = lambda name: bytes.fromhex(told[name])
        self.curve, self.gid, self.manager = told["curve"], of("gid"), of("group_manager_credential")
        self.aead, self.group_encryption = told["aead"], told["group_encryption"]
        self.secret, self.salt = of("master_secret"), of("master_salt")
        self.members = {bytes.fromhex(kid): {k: bytes.fromhex(v) for k, v in member.items()} for kid, member in members.items()}
        self.iv_len = max(AEADS[name][1] for name in (self.aead, self.group_encryption))
        self.common_iv = self.derive(self.salt, self.secret, b"", "IV", self.iv_len)
        self.signature_key = self.derive(self.salt, self.secret, b"", "SEKey", KEY_LEN)

    def derive(self, salt, secret, kid, kind, length, aead=None):
        """RFC 8613, section 3.2.1; RFC 10021, sections 2.1.9, 2.3 and 2.5.1."""
        info = [kid, self.gid, AEADS[aead or self.group_encryption][0], kind, length]
        return hkdf(salt, secret, cbor(info), length)

    def key(self, kid):
        return self.derive(self.salt, self.secret, kid, "Key", KEY_LEN)

    def public(self, kid):
        claims, rest = uncbor(self.members[kid]["credential"])
        assert not rest
        return claims[8][1]

    def shared(self, ours, theirs):
        """Section 2.5.1, with the map of section 2.5.2.1."""
        private, public = self.members[ours]["private"], self.public(theirs)
        if self.curve == "P-256":
            point = ec.EllipticCurvePublicNumbers(*(int.from_bytes(public[at], "big") for at in (-2, -3)), ec.SECP256R1())
            key = ec.derive_private_key(int.from_bytes(private, "big"), ec.SECP256R1())
            return key.exchange(ec.ECDH(), point.public_key())
        y = int.from_bytes(public[-2], "little") & (1 << 255) - 1
        assert y not in (1, P - 1)
        u = (1 + y) * pow(1 - y, -1, P) % P
        key = x25519.X25519PrivateKey.from_private_bytes(hashlib.sha512(private).digest()[:32])
        return key.exchange(x25519.X25519PublicKey.from_public_bytes(u.to_bytes(32, "little")))

    def pairwise(self, sender, recipient):
        secret = self.members[sender]["credential"] + self.members[recipient]["credential"] + self.shared(recipient, sender)
        return self.derive(self.key(sender), secret, sender, "Key", KEY_LEN, self.aead)

    def verify(self, kid, signed, signature):
        public = self.public(kid)
        if self.curve == "Ed25519":
            return ed25519.Ed25519PublicKey.from_public_bytes(public[-2]).verify(signature, signed)
        point = ec.EllipticCurvePublicNumbers(*(int.from_bytes(public[at], "big") for at in (-2, -3)), ec.SECP256R1())
        r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        return point.public_key().verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))

    def open(self, told, requests):
        """The mode, the sender, the request that the message is or answers, and the plaintext."""
        options, payload = message(bytes.fromhex(told["datagram"]))
        value = options[OSCORE]
        is_signed, number, gid, kid = option(value)
        is_request = told["answers"] is None
        sender = bytes.fromhex(told["from"])
        assert gid == self.gid if is_request else gid is None
        assert kid in (sender, None) and (kid is not None or not is_request)
        is_deterministic = "credential" not in self.members[sender]
        if is_request:
            request = (sender, number, is_signed, options[REQUEST_HASH] if is_deterministic else None)
        else:
            request = requests[told["answers"]]
            # Section 3.2.
            assert kid is not None or not request[2]
            if request[3] is not None:
                assert is_signed and number is not None and options.get(REQUEST_HASH, request[3]) == request[3]
        class_i = b"" if is_request or request[3] is None else b"\xed\x01\x17\x13" + request[3]
        aad_array = cbor(
            [
                1,
                [AEADS[self.aead][0], AEADS[self.group_encryption][0], SIGNATURES[self.curve], ECDH_SS_HKDF_256],
                request[0],
                request[1],
                class_i,
                self.gid,
                value,
                self.members[sender].get("credential", b""),
                self.manager,
            ]
        )
        piv_of, piv = (sender, number) if number is not None else request[:2]
        if is_signed:
            payload, encrypted = payload[:-SIGNATURE_LEN], payload[-SIGNATURE_LEN:]
            info = cbor([piv_of, self.gid, is_request, SIGNATURE_LEN])
            keystream = hkdf(piv, self.signature_key, info, SIGNATURE_LEN)
            signature = bytes(a ^ b for a, b in zip(encrypted, keystream))
            self.verify(sender, cbor(["CounterSignature0", b"", aad_array, payload]), signature)
            key, aead = self.key(sender), self.group_encryption
        elif is_deterministic:
            assert is_request and number == b"\0"
            key, aead = self.derive(self.key(sender), request[3], sender, "Key", KEY_LEN, self.aead), self.aead
        else:
            key, aead = self.pairwise(sender, bytes.fromhex(told["to"])), self.aead
        _, nonce_len, tag_len = AEADS[aead]
        nonce = bytes([len(piv_of)]) + piv_of.rjust(nonce_len - 6, b"\0") + piv.rjust(5, b"\0")
        nonce = bytes(a ^ b for a, b in zip(nonce, self.common_iv))
        cipher = AESGCM(key) if aead == "A128GCM" else AESCCM(key, tag_length=tag_len)
        plaintext = cipher.decrypt(nonce, payload, cbor(["Encrypt0", b"", aad_array]))
        if is_deterministic:
            assert hashlib.sha256(self.key(sender) + aad_array + plaintext).digest() == request[3]
        return "group" if is_signed else "pairwise", sender, request, plaintext


def main():
    with open(sys.argv[1]) as file:
        session = json.load(file)
    group = Group(session["group"], session["members"])
    requests, failed = {}, False
    for at, told in enumerate(session["messages"]):
        try:
            mode, sender, requests[at], plaintext = group.open(told, requests)
        except (InvalidTag, InvalidSignature, AssertionError, KeyError, IndexError) as error:
            failed = True
            print(json.dumps({"message": at, "failed": type(error).__name__}))
            continue
        print(json.dumps({"mode": mode, "from": sender.hex(), "plaintext": plaintext.hex()}))
    sys.exit(failed)


main()
