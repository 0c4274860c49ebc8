#!/usr/bin/env python3
"""Jobs whose first task gives the secret to those who have a certificate of the same subject."""

import shutil
import subprocess
import unittest

import secret_job
import workers

REFUSED = "it refuses this process: it takes only processes of the same user, by certificates, and of the same job"


@unittest.skipUnless(shutil.which("openssl"), "needs openssl")
class CertificateTest(secret_job.SecretJob):
    def setUp(self):
        super().setUp()
        self.issue("authority", "/CN=Authority", None, "basicConstraints=critical,CA:TRUE")
        self.issue("alice", "/O=Site/CN=alice")

    def issue(self, name, subject, authority="authority", extension="extendedKeyUsage=clientAuth"):
        """Makes NAME.key and NAME.crt, of an authority or self-signed."""
        configuration = self.folder / "req.cnf"
        configuration.write_text("[req]\ndistinguished_name = name\n[name]\n", encoding="ascii")
        issuer = ["-CA", self.folder / f"{authority}.crt", "-CAkey", self.folder / f"{authority}.key"] if authority else []
        subprocess.run(["openssl", "req", "-x509", "-config", configuration, "-newkey", "rsa:2048", "-nodes", "-subj", subject,
                        "-addext", extension, "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.crt",
                        *issuer], check=True, capture_output=True)

    def files_of(self, name, authority="authority"):
        return {"LOCKSTEP_CERTIFICATE": str(self.folder / f"{name}.crt"),
                "LOCKSTEP_CERTIFICATE_KEY": str(self.folder / f"{name}.key"),
                "LOCKSTEP_CERTIFICATE_AUTHORITY": str(self.folder / f"{authority}.crt")}

    def source(self):
        return self.files_of("alice")

    def test_workers_have_the_same_bits_as_with_a_token(self):
        self.check_same_bits_as_with_a_token(**dict.fromkeys(self.source()))

    def test_parameter_servers_train(self):
        self.check_servers_train()

    def test_another_subject_gets_no_secret(self):
        self.issue("eve", "/O=Site/CN=eve")
        self.check_refusal({}, self.files_of("eve"), REFUSED)

    def test_the_same_subject_of_another_authority_gets_no_secret(self):
        self.issue("rogue", "/CN=Authority", None, "basicConstraints=critical,CA:TRUE")
        self.issue("forged", "/O=Site/CN=alice", "rogue")
        self.check_refusal({}, self.files_of("forged", "rogue"), REFUSED)

    def test_a_process_without_a_certificate_gets_no_secret(self):
        with workers.reserved_port() as first:
            started = [self.start(0, first)]
            without = self.start(1, first, **dict.fromkeys(self.source()), LOCKSTEP_JOB_TOKEN=workers.TOKEN)
            self.check_end(without, 5, "with another job token than worker 0", "if one of them uses MUNGE or certificates")
            started.append(self.start(1, first))
        self.check_trains(started)

    def test_with_a_token_too_a_process_needs_both(self):
        self.check_both_needed()

    def test_a_certificate_that_cannot_be_used_is_refused_before_the_job_begins(self):
        self.issue("host", "/O=Site/CN=alice", extension="extendedKeyUsage=serverAuth")
        for variables, *texts in (
                (self.files_of("host"), "LOCKSTEP_CERTIFICATE: expected", "unsuitable certificate purpose"),
                ({"LOCKSTEP_CERTIFICATE_KEY": None}, "expected LOCKSTEP_CERTIFICATE_KEY together with LOCKSTEP_CERTIFICATE"),
                ({"LOCKSTEP_CERTIFICATE_KEY": str(self.folder / "authority.key")}, "LOCKSTEP_CERTIFICATE_KEY: expected", "another key"),
                ({"LOCKSTEP_CERTIFICATE": "/no/file"}, "LOCKSTEP_CERTIFICATE: cannot open '/no/file'"),
                ({"LOCKSTEP_MUNGE": "1"}, "(LOCKSTEP_MUNGE=1), but got both")):
            with self.subTest(texts[0]), workers.reserved_port() as first:
                self.check_end(self.start(1, first, **variables), 2, *texts)


if __name__ == "__main__":
    unittest.main()
