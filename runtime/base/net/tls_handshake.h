#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/channel_identity.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/secret_grant.h"
#include "lockstep/runtime/base/net/tls_records.h"

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

/// See TlsHandshake::binding().
using ChannelBinding = std::array<uint8_t, 32>;

/// The handshake of TLS 1.3 over a connected socket, by OpenSSL, with the key of derive_channel_key() as an
/// external pre-shared key and an ephemeral key exchange. There are no certificates, no session tickets and
/// no early data.
///
/// Nothing blocks. Use it from one thread at a time.
class TlsHandshake {
 public:
  /// The secrets of both directions.
  struct Secrets {
    TrafficSecret sending{};
    TrafficSecret receiving{};
    /// Overwrites both.
    void cleanse();
  };

  /// Begins as a client. Does not own the socket, which must outlive the handshake.
  TlsHandshake(int socket, const JobToken& token, const ChannelIdentity& identity);
  /// Begins as a server. With a grant, clients that do not know the token may connect, too, for
  /// kSecretPurpose.
  TlsHandshake(int socket, const JobToken& token, ChannelAdmission admission,
               std::shared_ptr<const SecretGrant> grant);
  ~TlsHandshake();
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;

  /// Continues with the bytes that have arrived, and takes none that follow the handshake. Returns true once
  /// both ends have proved that they know the connection's key; call it no more then. Throws HandshakeError,
  /// or std::system_error if the connection fails.
  bool advance();
  /// Returns poll()'s event to wait for after advance() has returned false.
  short event() const;
  /// Returns true if the client's hello has arrived at this server. The hello proves the client's key: those
  /// that do not know the token can make one for kSecretPurpose at most.
  bool has_hello() const;

  /// Returns true if this end is the server.
  bool is_server() const;
  /// Returns what the connection is for. The other end has proved it once advance() has returned true.
  const ChannelIdentity& identity() const;
  /// Returns a value that only the two ends of this connection have, and that no other connection has (RFC
  /// 9266), once advance() has returned true.
  ChannelBinding binding() const;
  /// Returns the secrets of the records that follow, once advance() has returned true.
  Secrets secrets() const;

 private:
  struct Engine;

  bool flush();
  [[noreturn]] void fail();

  const std::unique_ptr<Engine> engine_;
};

}  // namespace lockstep
