"""An SMTP server for the tests: aiosmtpd, with a user `ops` and the password `secret`; each mail is a line of JSON.

smtp.py FILE ssl|starttls|plain [CERTIFICATE KEY]: prints the port when it listens.
"""

import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


class Sink:
    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        part = next(p for p in mail.walk() if p.get_content_maintype() == "text")
        record = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "subject": mail["Subject"],
            "cc": mail["Cc"],
            "kind": mail.get_content_type() + " " + part.get_content_type(),
            "body": part.get_content(),
            "user": session.auth_data,
            "tls": session.ssl is not None or sys.argv[2] == "ssl",
        }
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps(record) + "\n")
        return "250 taken"


def authenticate(server, session, envelope, mechanism, login):
    right = (login.login, login.password) == (b"ops", b"secret")
    return AuthResult(success=right, handled=right, auth_data=login.login.decode())


async def main():
    context = None
    if len(sys.argv) > 3:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3], sys.argv[4])
    starttls = sys.argv[2] == "starttls"

    def protocol():
        return SMTP(
            Sink(),
            authenticator=authenticate,
            auth_required=True,
            auth_require_tls=starttls,
            require_starttls=starttls,
            tls_context=context if starttls else None,
            hostname="localhost",
        )

    loop = asyncio.get_running_loop()
    implicit = context if sys.argv[2] == "ssl" else None
    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=implicit)
    print("listens", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
