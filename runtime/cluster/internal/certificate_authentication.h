#pragma once

#include <memory>
#include <string>

#include "lockstep/runtime/base/net/secret_grant.h"
#include "lockstep/runtime/cluster/cluster_options.h"

namespace lockstep {

/// Proves by a certificate which user runs a process. A proof is a signature (CMS, RFC 5652) with the
/// certificate's key. It holds for processes that have a certificate with the same subject, which must not be
/// empty, from the same authority. Certificates must be valid now and allow TLS clients. There is no look-up
/// of revoked ones.
class CertificateAuthentication final : public UserAuthentication {
 public:
  /// Reads the files. Throws InvalidArgument naming the file if it cannot be read, is not PEM or has a
  /// passphrase, if the key is not the certificate's, or if check() would refuse the certificate.
  explicit CertificateAuthentication(const UserCertificate& files);
  ~CertificateAuthentication() override;

  std::string name() const override { return "certificates"; }
  std::vector<uint8_t> prove(std::span<const uint8_t> statement) const override;
  void check(std::span<const uint8_t> statement, std::span<const uint8_t> proof) const override;

 private:
  struct Credentials;

  const std::unique_ptr<const Credentials> credentials_;
};

}  // namespace lockstep
