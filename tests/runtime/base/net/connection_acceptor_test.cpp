#include "lockstep/runtime/base/net/connection_acceptor.h"

#include <gtest/gtest.h>
// C library headers, for their types.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = StreamSocket::Clock;

const JobToken& token_of_job() {
  static const JobToken token = JobToken::random();
  return token;
}

const ChannelIdentity kIdentity{.purpose = "test", .client = "worker 1", .server = "worker 0"};

/// A port whose connections echo() answers.
class AcceptorTest : public ::testing::Test {
 protected:
  /// Adds a port, and returns its number.
  int add_port(std::vector<ConnectionAcceptor::Listener>& listeners, ConnectionAcceptor::Begin begin) {
    TcpListener listener("127.0.0.1", 0);
    EXPECT_EQ(listen(listener.descriptor(), ConnectionAcceptor::kBacklog), 0);
    listeners.push_back({.socket = Descriptor(listener.release()), .begin = std::move(begin)});
    return listener.port();
  }
  ConnectionAcceptor::Begin echoing() {
    return admit_by_tls(
        {.token = token_of_job(),
         .admission = [](const ChannelIdentity& identity) { return identity.purpose == "test"; }},
        [](AdmittedConnection admitted) {
          SecureSocket socket(StreamSocket(admitted.socket.release()), std::move(admitted.session));
          uint8_t byte = 0;
          if (socket.receive({{&byte, 1}}, soon())) socket.send({{&byte, 1}}, soon());
        });
  }
  /// Listens on one port.
  void start(const PendingConnectionLimits& limits = {}) {
    std::vector<ConnectionAcceptor::Listener> listeners;
    port_ = add_port(listeners, echoing());
    acceptor_.emplace(std::move(listeners), limits);
  }
  static StreamSocket connect(int port) { return StreamSocket::connect("127.0.0.1", port, soon()); }
  /// Returns what comes back of a byte.
  static int echo(SecureSocket& socket) {
    const uint8_t sent = 42;
    uint8_t byte = 0;
    socket.send({{&sent, 1}}, soon());
    return socket.receive({{&byte, 1}}, soon()) ? byte : -1;
  }
  static int echo(int port) {
    SecureSocket socket(connect(port));
    socket.meet(token_of_job(), kIdentity, soon());
    return echo(socket);
  }
  /// Returns whether the other end closes a connection, whatever it sends before.
  static bool is_closed(StreamSocket& socket, Clock::time_point deadline = soon()) {
    uint8_t byte = 0;
    const auto error = code_of([&] {
      while (socket.receive({{&byte, 1}}, deadline)) continue;
    });
    return error != std::errc::timed_out;
  }

  int port_ = 0;
  std::optional<ConnectionAcceptor> acceptor_;
};

TEST_F(AcceptorTest, PassesConnectionsOnThatKnowTheToken) {
  start();
  EXPECT_EQ(echo(port_), 42);
  EXPECT_EQ(echo(port_), 42);
  EXPECT_EQ(acceptor_->num_rejected(), 0U);
}

TEST_F(AcceptorTest, ClosesThoseThatDoNot) {
  start();
  SecureSocket guesses(connect(port_));
  EXPECT_THROW(guesses.meet(JobToken::random(), kIdentity, soon()), HandshakeError);
  SecureSocket mistaken(connect(port_));
  EXPECT_THROW(mistaken.meet(token_of_job(), {.purpose = "another"}, soon()), HandshakeError);
  auto foreign = connect(port_);
  const std::vector<uint8_t> garbage(100, 'x');
  foreign.send({garbage}, soon());
  EXPECT_TRUE(is_closed(foreign));
  EXPECT_EQ(echo(port_), 42);
  EXPECT_EQ(acceptor_->num_rejected(), 3U);
  EXPECT_EQ(acceptor_->num_wrong_tokens(), 1U);
}

// A client that sends a byte from time to time is not silent, but makes no progress either.
TEST_F(AcceptorTest, GivesEachHandshakeOnlyItsTime) {
  start({.timeout = milliseconds(300)});
  const auto begin = Clock::now();
  auto dribbling = connect(port_);
  const std::vector<uint8_t> record{0x16, 3, 1, 0x40, 0};  // the header of a record of 16 KiB
  dribbling.send({record}, soon());
  const std::vector<uint8_t> one{1};
  bool is_open = true;
  while (is_open && Clock::now() < begin + std::chrono::seconds(30)) {
    is_open = !code_of([&] { dribbling.send({one}, soon()); });
    if (is_open) is_open = !is_closed(dribbling, soon(milliseconds(20)));
  }
  EXPECT_FALSE(is_open);
  EXPECT_GE(Clock::now() - begin, milliseconds(300));
  EXPECT_EQ(acceptor_->num_rejected(), 1U);
}

TEST_F(AcceptorTest, KeepsThosePendingThatCameFirstWhileOthersWait) {
  constexpr int kPlaces = 4;
  start({.max_connections = kPlaces});
  std::vector<StreamSocket> strangers;
  const auto begin = Clock::now();
  for (int i = 0; i < 3 * kPlaces; ++i) strangers.push_back(connect(port_));
  EXPECT_EQ(echo(port_), 42);
  // Three times, all places are taken for as long as it takes to become slow.
  EXPECT_GE(Clock::now() - begin, 3 * PendingConnectionLimits{}.slow_after);
  EXPECT_EQ(acceptor_->num_rejected(), 2U * kPlaces + 1U);
}

TEST_F(AcceptorTest, SharesThePlacesAmongItsListeners) {
  std::vector<ConnectionAcceptor::Listener> listeners;
  const int first = add_port(listeners, echoing());
  const int second = add_port(listeners, echoing());
  acceptor_.emplace(std::move(listeners), PendingConnectionLimits{.max_connections = 1});
  auto stranger = connect(first);
  const auto begin = Clock::now();
  EXPECT_EQ(echo(second), 42);
  EXPECT_TRUE(is_closed(stranger));
  EXPECT_GE(Clock::now() - begin, PendingConnectionLimits{}.slow_after - milliseconds(50));
}

TEST_F(AcceptorTest, CountsConnectionsThatItDoesNotWantAtAll) {
  std::vector<ConnectionAcceptor::Listener> listeners;
  const int port = add_port(listeners, [](const Descriptor&) -> std::unique_ptr<PendingConnection> {
    throw std::runtime_error("no");
  });
  acceptor_.emplace(std::move(listeners), PendingConnectionLimits{});
  auto refused = connect(port);
  EXPECT_TRUE(is_closed(refused));
  acceptor_->stop();  // counts after it has closed
  EXPECT_EQ(acceptor_->num_rejected(), 1U);
}

TEST_F(AcceptorTest, RefusesConnectionsOnceItIsInterrupted) {
  start();
  auto pending = connect(port_);
  acceptor_->interrupt();
  EXPECT_TRUE(is_closed(pending));
  acceptor_->stop();
  EXPECT_EQ(code_of([&] { connect(port_); }), std::errc::connection_refused);
  acceptor_->stop();  // does nothing more
}

// Connections wait meanwhile.
TEST_F(AcceptorTest, AcceptsLaterIfDescriptorsHaveRunOut) {
  start();
  std::vector<Descriptor> taken;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{static_cast<rlim_t>(Descriptor(dup(0)).get()) + 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (;;) {
    Descriptor next(dup(0));
    if (next.get() < 0) break;
    taken.push_back(std::move(next));
  }
  taken.pop_back();  // for this end of the connection
  SecureSocket waiting(connect(port_));
  auto admitted = std::async(std::launch::async, [&] {
    waiting.meet(token_of_job(), kIdentity, soon());
    return echo(waiting);
  });
  EXPECT_EQ(admitted.wait_for(milliseconds(100)), std::future_status::timeout);
  taken.clear();
  EXPECT_EQ(admitted.get(), 42);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace lockstep
