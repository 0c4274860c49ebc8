#include "lockstep/runtime/cluster/internal/certificate_authentication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/process_runner.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;
using Arguments = std::vector<std::string>;

const Bytes kStatement{1, 0, '\n', 2};
const Arguments kOfUser{"-addext", "extendedKeyUsage=clientAuth", "-addext", "basicConstraints=CA:FALSE"};

Bytes read_bytes(const std::string& path) {
  const std::string text = testing::read_text(path);
  return {text.begin(), text.end()};
}

class CertificateAuthenticationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TemporaryFolder;
    folder_->write("req.cnf", "[req]\ndistinguished_name = name\n[name]\n");
    issue("authority", "/CN=Authority", "", {"-addext", "basicConstraints=critical,CA:TRUE"});
    issue("alice", "/O=Site/CN=alice", "authority", kOfUser);
  }
  static void TearDownTestSuite() { delete folder_; }

  static void openssl(const Arguments& arguments) {
    Arguments command{"openssl"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const auto result = testing::run_process("/usr/bin/env", command);
    if (result.exit_code != 0) throw std::runtime_error("openssl: " + result.error);
  }
  /// Makes a key and a certificate, from an authority or from itself, with OpenSSL's program.
  static void issue(const std::string& name, const std::string& subject, const std::string& authority,
                    const Arguments& more) {
    Arguments arguments{"req",
                        "-config",
                        folder_->file("req.cnf"),
                        "-x509",
                        "-newkey",
                        "ec",
                        "-pkeyopt",
                        "ec_paramgen_curve:P-256",
                        "-nodes",
                        "-subj",
                        subject,
                        "-keyout",
                        key(name),
                        "-out",
                        certificate(name)};
    if (!authority.empty())
      arguments.insert(arguments.end(), {"-CA", certificate(authority), "-CAkey", key(authority)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    openssl(arguments);
  }
  static std::string key(const std::string& name) { return folder_->file(name + ".key"); }
  static std::string certificate(const std::string& name) { return folder_->file(name + ".crt"); }
  static UserCertificate files_of(const std::string& name, const std::string& authority = "authority") {
    return {.certificate = certificate(name), .key = key(name), .authority = certificate(authority)};
  }
  static std::string refusal_of(const UserCertificate& files) {
    return message_of<InvalidArgument>([&] { CertificateAuthentication{files}; });
  }
  static std::string refusal_of(const CertificateAuthentication& user, const Bytes& proof,
                                const Bytes& statement = kStatement) {
    return message_of<InvalidArgument>([&] { user.check(statement, proof); });
  }

  static testing::TemporaryFolder* folder_;
};

testing::TemporaryFolder* CertificateAuthenticationTest::folder_ = nullptr;

TEST_F(CertificateAuthenticationTest, AcceptsAnotherCertificateOfTheSameSubject) {
  issue("alice2", "/O=Site/CN=alice", "authority", kOfUser);
  const CertificateAuthentication first(files_of("alice"));
  const CertificateAuthentication second(files_of("alice2"));
  first.check(kStatement, second.prove(kStatement));
  second.check(kStatement, first.prove(kStatement));
}

TEST_F(CertificateAuthenticationTest, ProvesWhatOpensslsProgramAcceptsAndTheOtherWayAround) {
  const CertificateAuthentication user(files_of("alice"));
  const std::string statement = folder_->write("statement", kStatement);
  const std::string proof = folder_->write("proof", user.prove(kStatement));
  openssl({"cms", "-verify", "-binary", "-inform", "DER", "-in", proof, "-content", statement, "-CAfile",
           certificate("authority"), "-purpose", "sslclient", "-out", folder_->file("content")});
  openssl({"cms", "-sign", "-binary", "-outform", "DER", "-in", statement, "-signer", certificate("alice"),
           "-inkey", key("alice"), "-out", proof});
  user.check(kStatement, read_bytes(proof));
}

TEST_F(CertificateAuthenticationTest, FollowsAChainOfAuthorities) {
  issue("department", "/CN=Department", "authority", {"-addext", "basicConstraints=critical,CA:TRUE"});
  issue("bob", "/O=Site/CN=bob", "department", kOfUser);
  EXPECT_THAT(refusal_of(files_of("bob")), HasSubstr("unable to get local issuer certificate"));
  auto files = files_of("bob");
  const Bytes own = read_bytes(certificate("bob"));
  Bytes chain = own;
  const Bytes between = read_bytes(certificate("department"));
  chain.insert(chain.end(), between.begin(), between.end());
  files.certificate = folder_->write("chain.crt", chain);
  const CertificateAuthentication user(files);
  user.check(kStatement, user.prove(kStatement));
}

TEST_F(CertificateAuthenticationTest, RefusesAnotherSubjectOfTheSameAuthority) {
  issue("eve", "/O=Site/CN=eve", "authority", kOfUser);
  const CertificateAuthentication alice(files_of("alice"));
  const CertificateAuthentication eve(files_of("eve"));
  EXPECT_THAT(refusal_of(alice, eve.prove(kStatement)),
              HasSubstr("one of the subject 'CN=eve,O=Site' instead of 'CN=alice,O=Site'"));
}

TEST_F(CertificateAuthenticationTest, RefusesTheSameSubjectOfAnotherAuthority) {
  issue("rogue", "/CN=Authority", "", {"-addext", "basicConstraints=critical,CA:TRUE"});
  issue("forged", "/O=Site/CN=alice", "rogue", kOfUser);
  const CertificateAuthentication alice(files_of("alice"));
  const CertificateAuthentication forged(files_of("forged", "rogue"));
  EXPECT_THAT(refusal_of(alice, forged.prove(kStatement)), HasSubstr("certificate verify error"));
  EXPECT_THAT(refusal_of(forged, alice.prove(kStatement)), HasSubstr("certificate verify error"));
  issue("own", "/O=Site/CN=alice", "", kOfUser);
  EXPECT_THAT(refusal_of(alice, CertificateAuthentication(files_of("own", "own")).prove(kStatement)),
              HasSubstr("certificate verify error"));
}

TEST_F(CertificateAuthenticationTest, RefusesACertificateThatHasExpired) {
  issue("request", "/O=Site/CN=alice", "authority", kOfUser);
  openssl({"req", "-config", folder_->file("req.cnf"), "-new", "-key", key("request"), "-subj",
           "/O=Site/CN=alice", "-out", folder_->file("csr")});
  const auto until =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + std::chrono::seconds(4));
  folder_->write("index", "");
  folder_->write("ca.cnf",
                 "[ca]\ndefault_ca=c\n[c]\ndatabase=" + folder_->file("index") +
                     "\nnew_certs_dir=" + folder_->path() +
                     "\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n[p]\nO=supplied\nCN=supplied\n");
  char end[32];
  std::strftime(end, sizeof(end), "%y%m%d%H%M%SZ", std::gmtime(&until));
  openssl({"ca", "-batch", "-notext", "-config", folder_->file("ca.cnf"), "-cert", certificate("authority"),
           "-keyfile", key("authority"), "-in", folder_->file("csr"), "-out", certificate("request"),
           "-enddate", end});
  const CertificateAuthentication alice(files_of("alice"));
  const CertificateAuthentication expiring(files_of("request"));
  alice.check(kStatement, expiring.prove(kStatement));
  std::this_thread::sleep_until(std::chrono::system_clock::from_time_t(until + 2));
  EXPECT_THAT(refusal_of(alice, expiring.prove(kStatement)), HasSubstr("certificate has expired"));
  EXPECT_THAT(refusal_of(files_of("request")),
              AllOf(HasSubstr("LOCKSTEP_CERTIFICATE: expected " + certificate("request")),
                    HasSubstr("certificate has expired")));
}

TEST_F(CertificateAuthenticationTest, RefusesACertificateThatIsNotForClients) {
  issue("host", "/O=Site/CN=alice", "authority", {"-addext", "extendedKeyUsage=serverAuth"});
  EXPECT_THAT(refusal_of(files_of("host")), HasSubstr("unsuitable certificate purpose"));
}

TEST_F(CertificateAuthenticationTest, RefusesACertificateThatNamesNobody) {
  issue("nobody", "/", "authority", kOfUser);
  EXPECT_THAT(refusal_of(files_of("nobody")),
              HasSubstr("a certificate with a subject, which names the user"));
}

TEST_F(CertificateAuthenticationTest, RefusesAWeakKey) {
  openssl({"req", "-config", folder_->file("req.cnf"), "-x509", "-newkey", "rsa:1024", "-nodes", "-subj",
           "/O=Site/CN=alice", "-keyout", key("weak"), "-out", certificate("weak"), "-CA",
           certificate("authority"), "-CAkey", key("authority")});
  EXPECT_THAT(refusal_of(files_of("weak")), HasSubstr("EE certificate key too weak"));
}

TEST_F(CertificateAuthenticationTest, RefusesAProofOfAnotherStatementAndOtherBytes) {
  const CertificateAuthentication alice(files_of("alice"));
  Bytes proof = alice.prove(kStatement);
  EXPECT_THAT(refusal_of(alice, proof, {1}), HasSubstr("content verify error"));
  EXPECT_THAT(refusal_of(alice, {}), HasSubstr("something else"));
  EXPECT_THAT(refusal_of(alice, {0x30, 0x80}), HasSubstr("something else"));
  proof.back() ^= 1;
  EXPECT_THROW(alice.check(kStatement, proof), InvalidArgument);
}

TEST_F(CertificateAuthenticationTest, NamesTheFileThatItCannotUse) {
  auto files = files_of("alice");
  files.key = key("authority");
  EXPECT_THAT(refusal_of(files),
              AllOf(HasSubstr("LOCKSTEP_CERTIFICATE_KEY: expected " + files.key),
                    HasSubstr("the key of the certificate 'CN=alice,O=Site', but got another key")));
  files.key = folder_->file("missing");
  EXPECT_THAT(refusal_of(files), AllOf(HasSubstr("LOCKSTEP_CERTIFICATE_KEY"), HasSubstr(files.key)));
  files.key = certificate("alice");
  EXPECT_THAT(refusal_of(files), HasSubstr("a private key in PEM without a passphrase"));
  files.key = folder_->file("locked.key");
  openssl({"pkcs8", "-topk8", "-in", key("alice"), "-out", files.key, "-passout", "pass:secret"});
  EXPECT_THAT(refusal_of(files), HasSubstr("but got one with a passphrase"));
  files = files_of("alice");
  files.certificate = key("alice");
  EXPECT_THAT(refusal_of(files), HasSubstr("to be a certificate in PEM, but got none"));
  files = files_of("alice");
  files.authority = folder_->write("empty", "");
  EXPECT_THAT(refusal_of(files), HasSubstr("LOCKSTEP_CERTIFICATE_AUTHORITY: expected " + files.authority));
}

}  // namespace
}  // namespace lockstep
