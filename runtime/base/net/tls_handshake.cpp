#include "lockstep/runtime/base/net/tls_handshake.h"

// C library headers, for their types.
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <new>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/net/socket_error.h"

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

constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

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
  wire.error = num_read < 0 && !may_succeed_later(errno) ? errno : 0;
  BIO_set_retry_read(bio);  // advance() looks at the cause
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
  return context;
}

}  // namespace

/// The state that OpenSSL points to.
struct TlsHandshake::Engine {
  Engine(int socket, const JobToken& job_token, SSL_CTX* context);
  ~Engine() {
    OPENSSL_cleanse(&secrets, sizeof(secrets));
    SSL_free(ssl);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  static SSL_CTX* client_context();
  static SSL_CTX* server_context();
  static Engine& of(const SSL* ssl) { return *static_cast<Engine*>(SSL_get_app_data(ssl)); }
  static void keep_secret(const SSL* ssl, const char* line);
  static int use_identity(SSL* ssl, const EVP_MD* digest, const unsigned char** id, size_t* id_size,
                          SSL_SESSION** session);
  static int find_identity(SSL* ssl, const unsigned char* id, size_t id_size, SSL_SESSION** session);
  const JobToken* find_token(const ChannelIdentity& client) const;

  const JobToken token;
  ChannelAdmission admission;
  std::shared_ptr<const SecretGrant> grant;
  ChannelIdentity identity;
  std::vector<uint8_t> encoded_identity;
  struct {
    TrafficSecret client{};
    TrafficSecret server{};
  } secrets;
  TlsWire wire;
  SSL* ssl = nullptr;
};

/// Called by OpenSSL with a line of the key log, such as "CLIENT_TRAFFIC_SECRET_0 <client random> <secret>"
/// with both numbers in hex. OpenSSL 3.0 tells the secrets in no other way.
void TlsHandshake::Engine::keep_secret(const SSL* ssl, const char* line) {
  const std::string_view text(line);
  TrafficSecret* secret = text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")   ? &of(ssl).secrets.client
                          : text.starts_with("SERVER_TRAFFIC_SECRET_0 ") ? &of(ssl).secrets.server
                                                                         : nullptr;
  if (secret == nullptr) return;
  const char* digits = line + text.rfind(' ') + 1;
  size_t size = 0;
  // A secret of another size would be one of another digest than the only one that the context offers.
  OPENSSL_hexstr2buf_ex(secret->data(), secret->size(), &size, digits, '\0');
}

TlsHandshake::Engine::Engine(int socket, const JobToken& job_token, SSL_CTX* context)
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
SSL_CTX* TlsHandshake::Engine::client_context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = make_context(TLS_client_method());
    // A server with a certificate instead of the key is not ours.
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(made, use_identity);
    SSL_CTX_set_keylog_callback(made, keep_secret);
    return made;
  }();
  return context;
}

SSL_CTX* TlsHandshake::Engine::server_context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = make_context(TLS_server_method());
    SSL_CTX_set_psk_find_session_callback(made, find_identity);
    SSL_CTX_set_keylog_callback(made, keep_secret);
    return made;
  }();
  return context;
}

/// Called by OpenSSL in a client.
int TlsHandshake::Engine::use_identity(SSL* ssl, const EVP_MD* digest, const unsigned char** id,
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
int TlsHandshake::Engine::find_identity(SSL* ssl, const unsigned char* id, size_t id_size,
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
const JobToken* TlsHandshake::Engine::find_token(const ChannelIdentity& client) const {
  if (client.purpose == kSecretPurpose)
    return grant && client.generation == grant->generation ? &secret_channel_token() : nullptr;
  return admission(client) ? &token : nullptr;
}

TlsHandshake::TlsHandshake(int socket, const JobToken& token, const ChannelIdentity& identity)
    : engine_(std::make_unique<Engine>(socket, token, Engine::client_context())) {
  engine_->identity = identity;
  engine_->encoded_identity = encode_identity(identity);
  SSL_set_connect_state(engine_->ssl);
}

TlsHandshake::TlsHandshake(int socket, const JobToken& token, ChannelAdmission admission,
                           std::shared_ptr<const SecretGrant> grant)
    : engine_(std::make_unique<Engine>(socket, token, Engine::server_context())) {
  engine_->admission = std::move(admission);
  engine_->grant = std::move(grant);
  SSL_set_accept_state(engine_->ssl);
}

TlsHandshake::~TlsHandshake() = default;

const ChannelIdentity& TlsHandshake::identity() const {
  return engine_->identity;
}

bool TlsHandshake::has_hello() const {
  const OSSL_HANDSHAKE_STATE state = SSL_get_state(engine_->ssl);
  return state != TLS_ST_BEFORE && state != TLS_ST_SR_CLNT_HELLO;
}

bool TlsHandshake::is_server() const {
  return SSL_is_server(engine_->ssl) == 1;
}

ChannelBinding TlsHandshake::binding() const {
  constexpr std::string_view kLabel = "EXPORTER-Channel-Binding";
  ChannelBinding binding{};
  if (SSL_export_keying_material(engine_->ssl, binding.data(), binding.size(), kLabel.data(), kLabel.size(),
                                 nullptr, 0, 0) != 1)
    throw std::bad_alloc();  // it can fail only so after the handshake
  return binding;
}

TlsHandshake::Secrets TlsHandshake::secrets() const {
  return {.sending = is_server() ? engine_->secrets.server : engine_->secrets.client,
          .receiving = is_server() ? engine_->secrets.client : engine_->secrets.server};
}

short TlsHandshake::event() const {
  return engine_->wire.out.empty() ? POLLIN : POLLOUT;
}

void TlsHandshake::Secrets::cleanse() {
  OPENSSL_cleanse(this, sizeof(*this));
}

/// Returns false if the system takes no more bytes now.
bool TlsHandshake::flush() {
  TlsWire& wire = engine_->wire;
  while (wire.out_begin < wire.out.size()) {
    const ssize_t count = ::send(wire.socket, wire.out.data() + wire.out_begin,
                                 wire.out.size() - wire.out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && may_succeed_later(errno)) return false;
    if (count < 0) throw_socket_error(errno, "send");
    wire.out_begin += static_cast<size_t>(count);
  }
  wire.out.clear();
  wire.out_begin = 0;
  return true;
}

bool TlsHandshake::advance() {
  ERR_clear_error();
  const int result = SSL_do_handshake(engine_->ssl);
  if (result != 1 && SSL_get_error(engine_->ssl, result) != SSL_ERROR_WANT_READ) fail();
  // A client that has finished must still send its last message.
  if (!flush()) return false;
  if (result != 1) {
    if (engine_->wire.error != 0) throw_socket_error(engine_->wire.error, "handshake");
    if (engine_->wire.is_closed) throw_socket_error(ECONNRESET, "handshake");
    return false;
  }
  if (SSL_session_reused(engine_->ssl) != 1)
    throw HandshakeError(HandshakeError::Reason::kForeign, "expected a key of the job, but got none");
  return true;
}

void TlsHandshake::fail() {
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

}  // namespace lockstep
