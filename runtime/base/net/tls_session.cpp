#include "lockstep/runtime/base/net/tls_session.h"

// C library headers, for their types.
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace lockstep {

/// The bytes between OpenSSL and the socket.
struct TlsWire {
  int socket = -1;
  std::vector<uint8_t> out;  // encrypted bytes that the system has not taken yet
  size_t out_begin = 0;
  bool is_closed = false;  // by the other end
  int error = 0;           // of the last attempt to receive
};

namespace {

constexpr size_t kRecordBytes = size_t{16} * 1024;
// Encrypted at once, and sent by one system call.
constexpr size_t kChunkBytes = 4 * kRecordBytes;
// Received by one system call. OpenSSL decrypts the bytes where it has received them.
constexpr size_t kReceiveBytes = 4 * kRecordBytes;
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

[[noreturn]] void fail_session(int error, const char* purpose) {
  throw std::system_error(error, std::generic_category(), purpose);
}

bool is_for_now(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

TlsWire& wire_of(BIO* bio) {
  return *static_cast<TlsWire*>(BIO_get_data(bio));
}

int write_wire(BIO* bio, const char* bytes, int count) {
  try {
    auto& out = wire_of(bio).out;
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes);
    out.insert(out.end(), begin, begin + count);
    return count;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

int read_wire(BIO* bio, char* bytes, int count) {
  TlsWire& wire = wire_of(bio);
  BIO_clear_retry_flags(bio);
  const ssize_t num_read = recv(wire.socket, bytes, static_cast<size_t>(count), MSG_DONTWAIT);
  if (num_read > 0) return static_cast<int>(num_read);
  wire.is_closed = num_read == 0;
  wire.error = num_read < 0 && !is_for_now(errno) ? errno : 0;
  BIO_set_retry_read(bio);  // TlsSession looks at the cause
  return -1;
}

long control_wire(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

/// OpenSSL's own sockets would raise SIGPIPE. Never freed, as OpenSSL's own methods are not.
const BIO_METHOD* wire_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "lockstep");
    if (made == nullptr) throw std::bad_alloc();
    BIO_meth_set_write(made, write_wire);
    BIO_meth_set_read(made, read_wire);
    BIO_meth_set_ctrl(made, control_wire);
    return made;
  }();
  return method;
}

/// Returns a session with the key of an identity; nullptr if memory has run out.
SSL_SESSION* make_session(SSL* ssl, const JobToken& token, const ChannelIdentity& identity) {
  ChannelKey key = derive_channel_key(token, identity);
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
  const bool is_made = session != nullptr && cipher != nullptr &&
                       SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
                       SSL_SESSION_set_cipher(session, cipher) == 1 &&
                       SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  if (is_made) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

SSL_CTX* make_context(const SSL_METHOD* method) {
  // Threads may still use a session while the process exits.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  SSL_CTX* context = SSL_CTX_new(method);
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519") != 1)
    throw std::runtime_error("expected TLS 1.3 with AES-128-GCM and X25519 in OpenSSL, but it has none");
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReceiveBytes);
  return context;
}

}  // namespace

/// The state that OpenSSL points to.
struct TlsSession::Engine {
  Engine(int socket, const JobToken& job_token, SSL_CTX* context);
  ~Engine() { SSL_free(ssl); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  static SSL_CTX* client_context();
  static SSL_CTX* server_context();
  static Engine& of(SSL* ssl) { return *static_cast<Engine*>(SSL_get_app_data(ssl)); }
  static int use_identity(SSL* ssl, const EVP_MD* digest, const unsigned char** id, size_t* id_size,
                          SSL_SESSION** session);
  static int find_identity(SSL* ssl, const unsigned char* id, size_t id_size, SSL_SESSION** session);
  const JobToken* find_token(const ChannelIdentity& client) const;

  const JobToken token;
  ChannelAdmission admission;
  std::shared_ptr<const SecretGrant> grant;
  ChannelIdentity identity;
  std::vector<uint8_t> encoded_identity;
  TlsWire wire;
  SSL* ssl = nullptr;
};

TlsSession::Engine::Engine(int socket, const JobToken& job_token, SSL_CTX* context)
    : token(job_token), ssl(SSL_new(context)) {
  BIO* bio = BIO_new(wire_method());
  if (ssl == nullptr || bio == nullptr) {
    BIO_free(bio);
    SSL_free(ssl);
    throw std::bad_alloc();
  }
  wire.socket = socket;
  BIO_set_data(bio, &wire);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_app_data(ssl, this);
}

/// Contexts are never freed, since sessions may live until the process ends.
SSL_CTX* TlsSession::Engine::client_context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = make_context(TLS_client_method());
    // A server with a certificate instead of the key is not ours.
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(made, use_identity);
    return made;
  }();
  return context;
}

SSL_CTX* TlsSession::Engine::server_context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = make_context(TLS_server_method());
    SSL_CTX_set_psk_find_session_callback(made, find_identity);
    return made;
  }();
  return context;
}

/// Called by OpenSSL in a client.
int TlsSession::Engine::use_identity(SSL* ssl, const EVP_MD* digest, const unsigned char** id,
                                     size_t* id_size, SSL_SESSION** session) {
  *session = nullptr;
  // A server that asks for another digest is not ours.
  if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 1;
  try {
    const Engine& engine = of(ssl);
    *session = make_session(ssl, engine.token, engine.identity);
    *id = engine.encoded_identity.data();
    *id_size = engine.encoded_identity.size();
  } catch (const std::exception&) {  // no exception passes OpenSSL's frames
  }
  return *session != nullptr ? 1 : 0;
}

/// Called by OpenSSL in a server. Without a session, the handshake fails.
int TlsSession::Engine::find_identity(SSL* ssl, const unsigned char* id, size_t id_size,
                                      SSL_SESSION** session) {
  *session = nullptr;
  try {
    Engine& engine = of(ssl);
    auto identity = decode_identity({id, id_size});
    const JobToken* token = identity ? engine.find_token(*identity) : nullptr;
    if (token == nullptr) return 1;
    *session = make_session(ssl, *token, *identity);
    engine.identity = std::move(*identity);
  } catch (const std::exception&) {  // no exception passes OpenSSL's frames
  }
  return *session != nullptr ? 1 : 0;
}

/// Returns what a client has to know; nullptr if it is refused.
const JobToken* TlsSession::Engine::find_token(const ChannelIdentity& client) const {
  if (client.purpose == kSecretPurpose)
    return grant && client.generation == grant->generation ? &secret_channel_token() : nullptr;
  return admission(client) ? &token : nullptr;
}

TlsSession::TlsSession(int socket, const JobToken& token, const ChannelIdentity& identity)
    : engine_(std::make_unique<Engine>(socket, token, Engine::client_context())) {
  engine_->identity = identity;
  engine_->encoded_identity = encode_identity(identity);
  SSL_set_connect_state(engine_->ssl);
}

TlsSession::TlsSession(int socket, const JobToken& token, ChannelAdmission admission,
                       std::shared_ptr<const SecretGrant> grant)
    : engine_(std::make_unique<Engine>(socket, token, Engine::server_context())) {
  engine_->admission = std::move(admission);
  engine_->grant = std::move(grant);
  SSL_set_accept_state(engine_->ssl);
}

TlsSession::~TlsSession() = default;

const ChannelIdentity& TlsSession::identity() const {
  return engine_->identity;
}

std::array<uint8_t, 32> TlsSession::export_key(std::string_view label) const {
  std::array<uint8_t, 32> key{};
  if (SSL_export_keying_material(engine_->ssl, key.data(), key.size(), label.data(), label.size(), nullptr, 0,
                                 0) != 1)
    throw std::runtime_error("expected the keys of a connection, but its handshake is not over");
  return key;
}

short TlsSession::handshake_event() const {
  return engine_->wire.out.empty() ? POLLIN : POLLOUT;
}

/// Returns false if the system takes no more bytes now.
bool TlsSession::flush() {
  TlsWire& wire = engine_->wire;
  while (wire.out_begin < wire.out.size()) {
    const ssize_t count = ::send(wire.socket, wire.out.data() + wire.out_begin,
                                 wire.out.size() - wire.out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && is_for_now(errno)) return false;
    if (count < 0) fail_session(errno, "send");
    wire.out_begin += static_cast<size_t>(count);
  }
  wire.out.clear();
  wire.out_begin = 0;
  return true;
}

bool TlsSession::shake_hands() {
  is_secure_ = is_secure_ || secure();
  // Everybody knows the key of those who ask for the secret: no connection of theirs passes for a client's.
  if (is_secure_ && SSL_is_server(engine_->ssl) == 1 && identity().purpose == kSecretPurpose) {
    grant();
    return false;
  }
  return is_secure_;
}

/// Continues TLS's own handshake, and returns whether it is over.
bool TlsSession::secure() {
  ERR_clear_error();
  const int result = SSL_do_handshake(engine_->ssl);
  if (result != 1 && SSL_get_error(engine_->ssl, result) != SSL_ERROR_WANT_READ) handshake_failed();
  // A client that has finished must still send its last message.
  if (!flush()) return false;
  if (result != 1) {
    check_for_error();
    if (engine_->wire.is_closed) fail_session(ECONNRESET, "handshake");
    return false;
  }
  if (SSL_session_reused(engine_->ssl) != 1)
    throw HandshakeError(HandshakeError::Reason::kForeign, "expected a key of the job, but got none");
  return true;
}

/// Answers a client that asks for the secret, and throws once it is answered.
void TlsSession::grant() {
  if (!granting_) granting_ = std::make_unique<SecretGranting>(engine_->grant);
  if (!granting_->advance(*this) || !flush()) return;
  if (granting_->has_granted())
    throw HandshakeError(HandshakeError::Reason::kGranted, "the secret of the job was given");
  throw HandshakeError(HandshakeError::Reason::kToken,
                       "expected a process of this user and this job, but another one asked for the secret");
}

/// Throws if the system could not receive.
void TlsSession::check_for_error() const {
  if (engine_->wire.error != 0) fail_session(engine_->wire.error, "receive");
}

void TlsSession::handshake_failed() {
  const int reason = ERR_GET_REASON(ERR_peek_error());
  try {
    flush();                            // tells the other end
  } catch (const std::system_error&) {  // which may be gone
  }
  switch (reason) {
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      throw HandshakeError(HandshakeError::Reason::kToken,
                           "expected the job's token, but got another (LOCKSTEP_JOB_TOKEN)");
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
      throw HandshakeError(HandshakeError::Reason::kIdentity,
                           "expected a process of this start of the job, but another one connected");
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      throw HandshakeError(
          HandshakeError::Reason::kIdentity,
          "expected " + engine_->identity.server + " of this start of the job, but another process answered");
    default:
      throw HandshakeError(HandshakeError::Reason::kForeign,
                           "expected a Lockstep process of this version, but got another program");
  }
}

/// Returns up to kChunkBytes, from byte `begin` of the parts on. Small parts are copied into one record.
std::span<const uint8_t> TlsSession::gather(std::span<const std::span<const uint8_t>> parts, size_t begin) {
  size_t count = 0;
  for (const auto& part : parts) {
    if (begin >= part.size()) {
      begin -= part.size();
      continue;
    }
    const auto rest = part.subspan(begin);
    begin = 0;
    if (count == 0 && rest.size() >= kRecordBytes) return rest.first(std::min(rest.size(), kChunkBytes));
    plain_.resize(kRecordBytes);
    const size_t size = std::min(rest.size(), kRecordBytes - count);
    std::memcpy(plain_.data() + count, rest.data(), size);
    count += size;
    if (count == kRecordBytes) break;
  }
  return std::span<const uint8_t>(plain_).first(count);
}

void TlsSession::encrypt(std::span<const uint8_t> bytes) {
  if (num_records_ >= records_of_a_key_) {
    num_records_ = 0;
    SSL_key_update(engine_->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  num_records_ += (bytes.size() + kRecordBytes - 1) / kRecordBytes;
  ERR_clear_error();
  size_t num_written = 0;
  // The wire has room for everything, so this fails only after the connection has failed.
  if (SSL_write_ex(engine_->ssl, bytes.data(), bytes.size(), &num_written) != 1 ||
      num_written != bytes.size())
    fail_session(EPIPE, "send");
}

size_t TlsSession::send(std::span<const std::span<const uint8_t>> parts) {
  size_t num_taken = 0;
  while (flush()) {
    num_taken += std::exchange(num_encrypted_, 0);
    const auto bytes = gather(parts, num_taken);
    if (bytes.empty()) break;
    encrypt(bytes);
    num_encrypted_ = bytes.size();
  }
  return num_taken;
}

std::optional<size_t> TlsSession::receive(std::span<uint8_t> into) {
  size_t count = 0;
  while (count < into.size()) {
    size_t num_read = 0;
    ERR_clear_error();
    if (SSL_read_ex(engine_->ssl, into.data() + count, into.size() - count, &num_read) == 1) {
      count += num_read;
      continue;
    }
    const int code = SSL_get_error(engine_->ssl, 0);
    if (count > 0) return count;  // the next call reports what has happened
    if (code == SSL_ERROR_ZERO_RETURN) return std::nullopt;
    if (code != SSL_ERROR_WANT_READ) fail_session(EBADMSG, "receive");
    check_for_error();
    if (engine_->wire.is_closed) return std::nullopt;
    return 0;
  }
  return count;
}

}  // namespace lockstep
