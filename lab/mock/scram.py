"""MOCK: the server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677) for one user, in MongoDB's saslStart and
saslContinue."""

import base64
import hashlib
import hmac
import os

ROUNDS = 4096


def digest(key, text):
    return hmac.new(key, text, hashlib.sha256).digest()


def fields(payload):
    return dict(part.split("=", 1) for part in payload.split(",") if "=" in part)


class Failed(Exception):
    pass


class Conversation:
    """One authentication; `start` and `go_on` return the payload of the reply, `done` is set if it succeeded."""

    def __init__(self, user, password, skip_empty_exchange):
        self.user, self.password, self.skip_empty_exchange = user, password, skip_empty_exchange
        self.done = self.proved = False

    def start(self, payload):
        text = payload.decode()
        if not text.startswith("n,,"):
            raise Failed
        self.first = text[3:]
        asked = fields(self.first)
        self.known = asked.get("n") == self.user
        salt = os.urandom(28)
        self.salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, ROUNDS)
        self.nonce = asked["r"] + base64.b64encode(os.urandom(24)).decode()
        self.answer = f"r={self.nonce},s={base64.b64encode(salt).decode()},i={ROUNDS}"
        return self.answer.encode()

    def go_on(self, payload):
        if self.proved:
            self.done = True
            return b""
        text = payload.decode()
        without, _, proof = text.rpartition(",p=")
        message = ",".join([self.first, self.answer, without]).encode()
        client_key = digest(self.salted, b"Client Key")
        signature = digest(hashlib.sha256(client_key).digest(), message)
        wanted = bytes(one ^ other for one, other in zip(client_key, signature))
        right = hmac.compare_digest(wanted, base64.b64decode(proof))
        if not (right and self.known and fields(without).get("r") == self.nonce):
            raise Failed
        self.proved, self.done = True, self.skip_empty_exchange
        return b"v=" + base64.b64encode(digest(digest(self.salted, b"Server Key"), message))
