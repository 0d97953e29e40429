"""A reverse proxy with TLS on loopback, in place of Caddy or nginx: it passes the bytes of each connection on.

    python -m tests.docs.tls_proxy CERTIFICATE KEY PORT     prints its address

`run_tls_proxy` starts it for a server on loopback as `https://convo.example.com`. curl connects to it under this
name; every other client needs the address that the function yields.
"""

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

PUBLIC_HOST = "convo.example.com"
PUBLIC_URL = f"https://{PUBLIC_HOST}"


@contextmanager
def run_tls_proxy(port: int, folder: Path) -> Iterator[str]:
    """Yield the address of a proxy in front of `port`.

    Sets the variables with which curl and Python trust its certificate; the caller restores the environment.
    """
    folder.mkdir()
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    names = f"subjectAltName=DNS:{PUBLIC_HOST},IP:127.0.0.1"
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
    command = f"openssl req -x509 {curve} -nodes -days 2 -subj /CN={PUBLIC_HOST} -addext {names}".split()
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    arguments = [sys.executable, "-m", "tests.docs.tls_proxy", str(certificate), str(key), str(port)]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            assert process.stdout
            url = process.stdout.readline().strip()
            address = url.removeprefix("https://")
            curl_settings = f'connect-to = "{PUBLIC_HOST}:443:{address}"\ncacert = "{certificate}"\n'
            (folder / ".curlrc").write_text(curl_settings, encoding="utf-8")
            os.environ |= {"CURL_HOME": str(folder), "SSL_CERT_FILE": str(certificate)}
            yield url
        finally:
            process.terminate()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def serve(certificate: str, key: str, port: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(relay(reader, server_writer), relay(server_reader, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=context)
    print(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
