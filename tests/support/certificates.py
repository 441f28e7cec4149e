"""Certificate authorities and certificates for tests of mutual TLS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from services.chassis.channel import Tls

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that signs what a test asks for, with files under `folder`."""

    name: str
    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue(self, name: str, *, host: str = "127.0.0.1", lifetime: timedelta = DAY) -> Tls:
        """Return the files of a certificate for `host`; a negative lifetime has it expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        builder = _builder(name, self.certificate.subject, key, lifetime).add_extension(
            x509.SubjectAlternativeName([alternative]), critical=False
        )
        certificate = builder.sign(self.key, hashes.SHA256())
        files = Tls(
            certificate=self.folder / f"{name}.crt",
            key=self.folder / f"{name}.key",
            authority=self.folder / f"{self.name}.crt",
        )
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


def make_authority(name: str, folder: Path) -> Authority:
    """Return a new authority with its certificate in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(name, subject, key, DAY).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    certificate = builder.sign(key, hashes.SHA256())
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(name, folder, key, certificate)


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    end = datetime.now(UTC) + lifetime
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - 2 * DAY)
        .not_valid_after(end)
    )
