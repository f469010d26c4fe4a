"""A web server for the tests: answers by its path, and writes down what it was asked, a line of JSON each.

web.py FILE [CERTIFICATE KEY]: prints the port when it listens.
"""

import http.server
import json
import ssl
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode(errors="replace")
        record = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value.encode("latin-1").decode() for name, value in self.headers.items()},
            "body": body,
            "connection": self.client_address[1],
        }
        with lock, open(sys.argv[1], "a") as file:
            file.write(json.dumps(record) + "\n")
        path = self.path.split("?")[0]
        if path == "/fail":
            self.send(503, "out of order: " + "x" * 2000)
        elif path == "/fail-empty":
            self.send(404, "")
        elif path == "/forged":
            self.send(500, "oops\nINFO a forged line\x1b[2J\x00")
        elif path in ("/moved", "/moved-to-tls", "/moved-for-ever", "/moved-elsewhere"):
            self.send_response(307)
            locations = {"/moved": "/ok", "/moved-to-tls": "https://localhost/", "/moved-for-ever": path,
                         "/moved-elsewhere": f"http://127.0.0.1:{self.server.server_port}/stolen?token=in-a-query"}
            self.send_header("Location", locations[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/v1/traces":
            self.send(200, "")
        elif path == "/robot":
            self.send(200, '{"errcode":0,"errmsg":"ok"}')
        elif path == "/robot-refuses":
            self.send(200, '{"errcode":310000,"errmsg":"sign not match"}')
        elif path == "/silent":
            threading.Event().wait()
        elif path == "/gigabyte":
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 30))
            self.end_headers()
            block = b"x" * (1 << 16)
            sent = 0
            try:
                for _ in range(1 << 14):
                    sent += self.wfile.write(block)
            except OSError:
                pass
            with lock, open(sys.argv[1], "a") as file:
                file.write(json.dumps({"path": "/gigabyte-sent", "sent": sent}) + "\n")
            self.close_connection = True
        else:
            self.send(200, "done")

    def send(self, status, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_TRACE = answer

    def log_message(self, *_):
        pass


lock = threading.Lock()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print("listens", server.server_address[1], flush=True)
server.serve_forever()
