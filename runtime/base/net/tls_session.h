#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/channel_identity.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/secret_grant.h"

namespace lockstep {

/// A connection whose ends did not recognise each other.
class HandshakeError : public ClusterError {
 public:
  enum class Reason {
    kToken,     ///< the other end has another token
    kIdentity,  ///< the server is another process than the client wants to reach, or does not accept it
    kForeign,   ///< the other end does not speak this protocol
    kGranted,   ///< the client has got the secret of the job, with which it connects again
  };
  HandshakeError(Reason reason, const std::string& message) : ClusterError(message), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

/// TLS 1.3 over a connected socket, with the key of derive_channel_key() as an external pre-shared key, and
/// an ephemeral key exchange: recorded connections cannot be decrypted by those who learn the token later.
/// Bytes are encrypted by AES-128-GCM. There are no certificates, no session tickets and no early data.
///
/// Nothing blocks. All functions throw std::system_error if the connection fails: connection_reset or
/// broken_pipe if the other end is gone, bad_message if bytes were changed on the way. Use a session from one
/// thread at a time.
class TlsSession {
 public:
  /// AES-GCM loses its margin after 2^24.5 records with one key (RFC 8446, section 5.5), which are about
  /// 400 GB.
  static constexpr uint64_t kRecordsOfAKey = uint64_t{1} << 24;

  /// Begins as a client. Does not own the socket, which must outlive the session.
  TlsSession(int socket, const JobToken& token, const ChannelIdentity& identity);
  /// Begins as a server. With a grant, it also answers clients that do not know the token yet, but may get
  /// it. Their connections end within shake_hands().
  TlsSession(int socket, const JobToken& token, ChannelAdmission admission,
             std::shared_ptr<const SecretGrant> grant = nullptr);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Continues the handshake with the bytes that have arrived. Returns true once both ends have proved that
  /// they know the token; other functions may be called only then. Throws HandshakeError: kGranted, and
  /// kToken for a client that may not get the secret, once it is answered.
  bool shake_hands();
  /// Returns poll()'s event to wait for after shake_hands() has returned false.
  short handshake_event() const;

  /// Returns what the connection is for. The other end has proved it.
  const ChannelIdentity& identity() const;
  /// Returns a key that only the two ends of this connection have, and that no other connection has (RFC
  /// 8446, section 7.5).
  std::array<uint8_t, 32> export_key(std::string_view label) const;

  /// Takes bytes of the parts, in order, and returns how many; 0 if there is no room now. The next call must
  /// begin with the first byte that was not taken, since that may be encrypted already.
  size_t send(std::span<const std::span<const uint8_t>> parts);
  /// Moves bytes that have arrived into `into`, and returns how many; 0 if there are none now, and nullopt if
  /// the other end has closed the connection.
  std::optional<size_t> receive(std::span<uint8_t> into);

  /// Changes the sending key after this many records instead of kRecordsOfAKey.
  void change_key_every(uint64_t num_records) { records_of_a_key_ = num_records; }

 private:
  struct Engine;

  bool secure();
  void grant();
  bool flush();
  void check_for_error() const;
  std::span<const uint8_t> gather(std::span<const std::span<const uint8_t>> parts, size_t begin);
  void encrypt(std::span<const uint8_t> bytes);
  [[noreturn]] void handshake_failed();

  const std::unique_ptr<Engine> engine_;
  bool is_secure_ = false;                    // both ends have proved that they know the connection's key
  std::unique_ptr<SecretGranting> granting_;  // in a server whose client asks for the secret
  std::vector<uint8_t> plain_;                // small parts that are encrypted together
  size_t num_encrypted_ = 0;                  // bytes that are encrypted, but not yet reported as taken
  uint64_t num_records_ = 0;                  // with the current key
  uint64_t records_of_a_key_ = kRecordsOfAKey;
};

}  // namespace lockstep
