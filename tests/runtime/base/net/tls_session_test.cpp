#include "lockstep/runtime/base/net/tls_session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

const JobToken& session_token() {
  static const JobToken token = JobToken::from_text("a secret of the job");
  return token;
}

ChannelIdentity to_this_server() {
  return {.purpose = "rpc", .client = "worker 1", .server = "ps 0", .number = 3, .generation = 7};
}

ChannelAdmission all_clients() {
  return [](const ChannelIdentity&) { return true; };
}

Bytes random_session_bytes(size_t count) {
  std::mt19937 generator(5);
  Bytes values(count);
  std::generate(values.begin(), values.end(), [&] { return static_cast<uint8_t>(generator()); });
  return values;
}

/// The other end of a connection in an OpenSSL that does everything itself, its records too.
class OpenSslPeer {
 public:
  enum class Role { kClient, kServer };

  OpenSslPeer(int socket, Role role)
      : context_(SSL_CTX_new(role == Role::kClient ? TLS_client_method() : TLS_server_method())) {
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_num_tickets(context_.get(), 0);
    SSL_CTX_set_psk_use_session_callback(context_.get(), use_key);
    SSL_CTX_set_psk_find_session_callback(context_.get(), find_key);
    ssl_.reset(SSL_new(context_.get()));
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) & ~O_NONBLOCK);
    SSL_set_fd(ssl_.get(), socket);
    const int result = role == Role::kClient ? SSL_connect(ssl_.get()) : SSL_accept(ssl_.get());
    if (result != 1) throw std::runtime_error("OpenSSL's handshake has failed");
  }

  void send(std::span<const uint8_t> bytes) {
    size_t count = 0;
    if (SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &count) != 1 || count != bytes.size())
      throw std::runtime_error("OpenSSL could not send");
  }
  Bytes receive(size_t size) {
    Bytes bytes(size);
    size_t count = 0;
    for (size_t begin = 0; begin < size; begin += count)
      if (SSL_read_ex(ssl_.get(), bytes.data() + begin, size - begin, &count) != 1)
        throw std::runtime_error("OpenSSL could not receive");
    return bytes;
  }
  /// The next record that is sent comes after one that announces another key.
  void change_key() { SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED); }
  /// Announces that no bytes follow.
  void close() { SSL_shutdown(ssl_.get()); }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };

  static SSL_SESSION* key_of(SSL* ssl) {
    constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
    const auto key = derive_channel_key(session_token(), to_this_server());
    SSL_SESSION* session = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(session, key.data(), key.size());
    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kCipher));
    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
    return session;
  }
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* size, SSL_SESSION** session) {
    static const Bytes identity = encode_identity(to_this_server());
    *id = identity.data();
    *size = identity.size();
    *session = key_of(ssl);
    return 1;
  }
  static int find_key(SSL* ssl, const unsigned char*, size_t, SSL_SESSION** session) {
    *session = key_of(ssl);
    return 1;
  }

  const std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

/// A session and OpenSSL as its peer, which have shaken hands.
struct Connection {
  explicit Connection(OpenSslPeer::Role role_of_peer) : sockets(connected_sockets()) {
    const bool is_server = role_of_peer == OpenSslPeer::Role::kClient;
    auto& own = is_server ? sockets.server : sockets.client;
    auto& other = is_server ? sockets.client : sockets.server;
    session = is_server ? std::make_unique<TlsSession>(own.descriptor(), session_token(), all_clients())
                        : std::make_unique<TlsSession>(own.descriptor(), session_token(), to_this_server());
    auto made = std::async(std::launch::async,
                           [&] { return std::make_unique<OpenSslPeer>(other.descriptor(), role_of_peer); });
    const auto deadline = soon();
    while (!session->shake_hands())
      if (StreamSocket::Clock::now() > deadline)
        throw std::runtime_error("expected a handshake within a minute");
    peer = made.get();
  }

  void send(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) bytes = bytes.subspan(session->send(std::span(&bytes, 1)));
  }
  /// Receives in pieces of this size.
  Bytes receive(size_t size, size_t piece) {
    Bytes bytes(size);
    for (size_t begin = 0; begin < size;)
      begin += session->receive(std::span(bytes).subspan(begin, std::min(piece, size - begin))).value();
    return bytes;
  }

  SocketPair sockets;
  std::unique_ptr<TlsSession> session;
  std::unique_ptr<OpenSslPeer> peer;
};

class TlsSessionWithOpenSsl : public testing::TestWithParam<OpenSslPeer::Role> {};

TEST_P(TlsSessionWithOpenSsl, ReadsAndWritesTheRecordsOfTls) {
  Connection connection(GetParam());
  const auto values = random_session_bytes(3'000'001);
  auto received = std::async(std::launch::async, [&] { return connection.peer->receive(values.size()); });
  connection.send(values);
  EXPECT_EQ(received.get(), values);

  for (const size_t piece : {size_t{1000}, size_t{20'000}, values.size()}) {
    auto sent = std::async(std::launch::async, [&] { connection.peer->send(values); });
    EXPECT_EQ(connection.receive(values.size(), piece), values) << "in pieces of " << piece;
    sent.get();
  }
}

TEST_P(TlsSessionWithOpenSsl, ChangesKeysInBothDirections) {
  Connection connection(GetParam());
  connection.session->change_key_every(2);
  const auto values = random_session_bytes(200'000);
  auto received = std::async(std::launch::async, [&] { return connection.peer->receive(values.size()); });
  connection.send(values);
  EXPECT_EQ(received.get(), values);
  for (int i = 0; i < 3; ++i) {
    connection.peer->change_key();
    connection.peer->send(std::span(values).first(100));
  }
  EXPECT_EQ(connection.receive(100, 100), Bytes(values.begin(), values.begin() + 100));
}

TEST_P(TlsSessionWithOpenSsl, KnowsWhenThePeerSendsNoMore) {
  Connection connection(GetParam());
  const Bytes three{1, 2, 3};
  connection.peer->send(three);
  connection.peer->close();
  EXPECT_EQ(connection.receive(3, 3), three);
  Bytes more(1);
  std::optional<size_t> count = 0;
  while (count == 0u) count = connection.session->receive(more);
  EXPECT_EQ(count, std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(AsClientAndServer, TlsSessionWithOpenSsl,
                         testing::Values(OpenSslPeer::Role::kClient, OpenSslPeer::Role::kServer),
                         [](const auto& role) {
                           return role.param == OpenSslPeer::Role::kClient ? "PeerIsClient" : "PeerIsServer";
                         });

TEST(TlsSession, ChangesItsKeyAfterAsManyRecordsAsItMay) {
  auto [client_socket, server_socket] = connected_sockets();
  TlsSession client(client_socket.descriptor(), session_token(), to_this_server());
  TlsSession server(server_socket.descriptor(), session_token(), all_clients());
  client.change_key_every(1);
  bool client_is_done = false;
  bool server_is_done = false;
  while (!client_is_done || !server_is_done) {
    client_is_done = client_is_done || client.shake_hands();
    server_is_done = server_is_done || server.shake_hands();
  }
  const auto values = random_session_bytes(size_t{1} << 20);
  std::span<const uint8_t> left(values);
  std::vector<uint8_t> received(values.size());
  size_t num_received = 0;
  while (num_received < received.size()) {
    const std::vector<std::span<const uint8_t>> parts{left.first(std::min<size_t>(left.size(), 20'000))};
    left = left.subspan(client.send(parts));
    const auto count = server.receive(std::span(received).subspan(num_received));
    ASSERT_TRUE(count.has_value());
    num_received += *count;
  }
  EXPECT_EQ(received, values);
}

}  // namespace
}  // namespace lockstep
