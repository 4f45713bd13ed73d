"""An HTTP server over Python's http.server: http_server.py PORT.

It has /v (GET with an entity tag, PUT, DELETE) and /short, whose response is fresh for a second. It prints `listening`, and a line for each
request: METHOD PATH STATUS LENGTH, where the length is that of the body of the request.
"""

import hashlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

values = {"/v": b"hello", "/short": b"short"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", headers=()):
        print(self.command, self.path, status, len(self.body), flush=True)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def read(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def do_GET(self):
        self.read()
        value = values.get(self.path)
        if value is None:
            self.answer(404, b"nothing is here", [("Content-Type", "text/plain")])
            return
        tag = '"' + hashlib.sha256(value).hexdigest() + '"'
        headers = [("ETag", tag), ("Cache-Control", "max-age=1" if self.path == "/short" else "max-age=100")]
        if self.headers.get("If-None-Match") == tag:
            self.answer(304, headers=headers)
        else:
            self.answer(200, value, headers + [("Content-Type", "text/plain; charset=utf-8")])

    def do_PUT(self):
        self.read()
        is_new = self.path not in values
        values[self.path] = self.body
        self.answer(201 if is_new else 204)

    def do_DELETE(self):
        self.read()
        values.pop(self.path, None)
        self.answer(204)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("listening", flush=True)
server.serve_forever()
