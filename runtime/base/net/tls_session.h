#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/runtime/base/net/channel_identity.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/secret_granter.h"
#include "lockstep/runtime/base/net/tls_handshake.h"
#include "lockstep/runtime/base/net/tls_records.h"

namespace lockstep {

/// TLS 1.3 over a connected socket, with the key of derive_channel_key() as an external pre-shared key, and
/// an ephemeral key exchange: recorded connections cannot be decrypted by those who learn the token later.
/// Bytes are encrypted by AES-128-GCM.
///
/// OpenSSL shakes hands, and encrypts and decrypts. The session itself puts the bytes into records, as a
/// kernel with TLS does: it encrypts from the caller's memory to the bytes that the system is given, and
/// decrypts to the caller's memory. OpenSSL's own records would copy each byte twice more at the sender and
/// once more at the receiver.
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
  /// Begins as a server. With a granter, it also answers clients that do not know the token yet, but may get
  /// it. Their connections end within shake_hands().
  TlsSession(int socket, const JobToken& token, ChannelAdmission admission,
             std::shared_ptr<SecretGranter> granter = nullptr);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Continues the handshake with the bytes that have arrived. Returns true once both ends have proved that
  /// they know the token; other functions may be called only then. Throws HandshakeError: kGranted, and
  /// kToken for a client that may not get the secret, once it is answered.
  bool shake_hands();
  /// Returns poll()'s event to wait for after shake_hands() has returned false.
  short handshake_event() const;
  /// Returns the descriptor that it comes from: the socket's, or another one while a request for the secret
  /// is being checked.
  int handshake_descriptor() const;
  /// Returns true if the client's hello has arrived at this server; see TlsHandshake::has_hello().
  bool has_hello() const { return !handshake_ || handshake_->has_hello(); }

  /// Returns what the connection is for. The other end has proved it.
  const ChannelIdentity& identity() const { return identity_; }
  /// Returns a value that only the two ends of this connection have, and that no other connection has (RFC
  /// 9266).
  const ChannelBinding& binding() const { return binding_; }

  /// Takes bytes of the parts, in order, and returns how many; 0 if there is no room now. The next call must
  /// begin with the first byte that was not taken, since that may be encrypted already.
  size_t send(std::span<const std::span<const uint8_t>> parts);
  /// Moves bytes that have arrived into `into`, and returns how many; 0 if there are none now, and nullopt if
  /// the other end has closed the connection.
  std::optional<size_t> receive(std::span<uint8_t> into);

  /// Changes the sending key after this many records instead of kRecordsOfAKey.
  void change_key_every(uint64_t num_records) { records_of_a_key_ = num_records; }

 private:
  bool secure();
  void grant();
  bool flush();
  bool encrypt_some(std::span<const std::span<const uint8_t>> parts, size_t begin);
  size_t take_decrypted(std::span<uint8_t> into);
  bool receive_some();
  std::optional<std::span<const uint8_t>> next_record();

  const int socket_;
  std::shared_ptr<SecretGranter> granter_;   // until the handshake is done
  std::unique_ptr<TlsHandshake> handshake_;  // until it is done
  ChannelIdentity identity_;
  ChannelBinding binding_{};
  std::unique_ptr<SecretGranting> granting_;  // in a server whose client asks for the secret
  std::optional<TlsSealer> sealer_;           // once the handshake is done, as the opener
  std::optional<TlsOpener> opener_;
  uint64_t records_of_a_key_ = kRecordsOfAKey;

  // Records that the system has not taken yet.
  std::vector<uint8_t> out_;
  size_t out_begin_ = 0;
  size_t out_end_ = 0;
  size_t num_encrypted_ = 0;  // the user's bytes in out_, which send() has not reported as taken

  // Bytes of records that have arrived.
  std::vector<uint8_t> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  std::span<const uint8_t> decrypted_;  // a part of in_, for which there was no room
  bool is_closed_ = false;              // by the other end
};

}  // namespace lockstep
