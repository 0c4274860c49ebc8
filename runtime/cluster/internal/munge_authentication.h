#pragma once

#include <memory>
#include <string>

#include "lockstep/runtime/base/net/secret_grant.h"

namespace lockstep {

/// Proves by MUNGE (https://dun.github.io/munge) which user runs a process: between processes whose munged
/// daemons have the same key. A proof is a credential that only the user can decode, and only once on each
/// machine. Credentials expire; the clocks of machines may differ by as much as munged allows, by default 5
/// minutes.
class MungeAuthentication final : public UserAuthentication {
 public:
  /// Uses the munged that listens on `socket`; if it is empty, MUNGE's own socket. Throws InvalidArgument
  /// naming the library, or the socket, if MUNGE is not installed, or munged does not answer.
  explicit MungeAuthentication(const std::string& socket);

  /// Returns whether MUNGE's library is there and `socket` is a socket; if it is empty, MUNGE's own.
  static bool is_present(const std::string& socket);

  std::string name() const override { return "MUNGE"; }
  std::vector<uint8_t> prove(std::span<const uint8_t> statement) const override;
  void check(std::span<const uint8_t> statement, std::span<const uint8_t> proof) const override;

 private:
  const std::string socket_;
};

}  // namespace lockstep
