#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/base/net/channel_identity.h"
#include "lockstep/runtime/base/net/message_authentication.h"

namespace lockstep {

class TlsSession;

/// Proves to other processes which user runs this one, by means that the user's machines have in common.
/// Thread-safe.
class UserAuthentication {
 public:
  virtual ~UserAuthentication() = default;

  /// Returns its name for messages, such as "MUNGE".
  virtual std::string name() const = 0;
  /// Returns a proof that this user makes a statement. May ask another program, which takes milliseconds.
  /// Throws std::runtime_error if that fails.
  virtual std::vector<uint8_t> prove(std::span<const uint8_t> statement) const = 0;
  /// Throws InvalidArgument unless this user, perhaps on another machine, has proved the statement. Safe for
  /// untrusted input. May ask another program, as prove() does, and block for seconds if that does not
  /// answer.
  virtual void check(std::span<const uint8_t> statement, std::span<const uint8_t> proof) const = 0;
};

/// The secret that the first task of a job gives to the other processes of its user.
struct SecretGrant {
  std::shared_ptr<const UserAuthentication> authentication;
  std::string job;          ///< the launcher's name for the job
  uint64_t generation = 0;  ///< of the job's start; see ChannelIdentity
  JobToken secret;
};

/// Purpose of the connections over which processes get the secret. They come to the port of the first task's
/// server.
inline constexpr const char* kSecretPurpose = "secret";

/// Returns the key of these connections. Everybody knows it, so it protects nothing: TLS's ephemeral keys
/// encrypt the connection, and the proofs at its two ends hold for no other connection.
const JobToken& secret_channel_token();

/// The end of a connection at which a proof is made. A proof of one end is none of the other.
enum class SecretEnd { kClient, kServer };

/// Returns what an end proves: that it is this end of this connection (RFC 9266). The handshake must be over.
std::vector<uint8_t> secret_statement(const TlsSession& session, SecretEnd end);

}  // namespace lockstep
