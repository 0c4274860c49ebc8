#include "lockstep/runtime/base/net/secure_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/tests/runtime/base/net/relay.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Reason = HandshakeError::Reason;

const JobToken& secret() {
  static const JobToken token = JobToken::from_text("a secret of the job");
  return token;
}

ChannelIdentity to_server(const std::string& server) {
  return {.purpose = "rpc", .client = "worker 1", .server = server, .number = 3, .generation = 7};
}

/// Admits those that want to reach `server` in generation 7.
ChannelAdmission admission_of(const std::string& server) {
  return [server](const ChannelIdentity& identity) {
    return identity.server == server && identity.generation == 7;
  };
}

std::vector<uint8_t> random_values(size_t count) {
  std::mt19937 generator(5);
  std::vector<uint8_t> values(count);
  std::generate(values.begin(), values.end(), [&] { return static_cast<uint8_t>(generator()); });
  return values;
}

/// Both ends of a connection after the handshake, and why it failed otherwise.
struct Meeting {
  std::unique_ptr<SecureSocket> client;
  std::unique_ptr<SecureSocket> server;
  std::optional<Reason> client_failure;
  std::optional<Reason> server_failure;
  std::error_code client_error;
  std::error_code server_error;
};

template <typename Work>
void note_failure(const Work& work, std::optional<Reason>& failure, std::error_code& error) {
  try {
    work();
  } catch (const HandshakeError& thrown) {
    failure = thrown.reason();
  } catch (const std::system_error& thrown) {
    error = thrown.code();
  }
}

Meeting meet(StreamSocket client, StreamSocket server, const JobToken& client_token,
             const JobToken& server_token, const ChannelIdentity& identity,
             const ChannelAdmission& admission) {
  Meeting meeting{.client = std::make_unique<SecureSocket>(std::move(client)),
                  .server = std::make_unique<SecureSocket>(std::move(server))};
  auto served = std::async(std::launch::async, [&] {
    note_failure([&] { meeting.server->admit(server_token, admission, soon()); }, meeting.server_failure,
                 meeting.server_error);
  });
  note_failure([&] { meeting.client->meet(client_token, identity, soon()); }, meeting.client_failure,
               meeting.client_error);
  // A client that has finished may still be refused by the server.
  if (meeting.client_failure || meeting.client_error) meeting.client->shut();
  served.get();
  return meeting;
}

Meeting meet(const JobToken& client_token, const JobToken& server_token, const std::string& wanted,
             const std::string& reached) {
  auto [client, server] = connected_sockets();
  return meet(std::move(client), std::move(server), client_token, server_token, to_server(wanted),
              admission_of(reached));
}

/// A connection with an attacker on the way.
struct Relayed {
  std::unique_ptr<Relay> relay;
  Meeting meeting;
};

Relayed meet_over_relay(Relay::Change change_to_server, const std::string& wanted = "ps 0",
                        const std::string& reached = "ps 0") {
  auto [client, client_side] = connected_sockets();
  auto [server_side, server] = connected_sockets();
  auto relay =
      std::make_unique<Relay>(std::move(client_side), std::move(server_side), std::move(change_to_server));
  auto meeting = meet(std::move(client), std::move(server), secret(), secret(), to_server(wanted),
                      admission_of(reached));
  return {std::move(relay), std::move(meeting)};
}

TEST(SecureSocket, ProcessesOfOneJobMeet) {
  auto [client_socket, server_socket] = connected_sockets();
  SecureSocket client(std::move(client_socket));
  SecureSocket server(std::move(server_socket));
  auto admitted =
      std::async(std::launch::async, [&] { return server.admit(secret(), admission_of("ps 0"), soon()); });
  client.meet(secret(), to_server("ps 0"), soon());
  EXPECT_EQ(admitted.get(), to_server("ps 0"));
}

TEST(SecureSocket, CarriesPartsOfAnySizeInBothDirectionsAtOnce) {
  auto meeting = meet(secret(), secret(), "ps 0", "ps 0");
  const auto values = random_values(size_t{20} << 20);
  const std::span<const uint8_t> all(values);
  // Each end sends more than the system buffers before it receives, and so must receive meanwhile.
  const auto exchange = [&](SecureSocket& socket) {
    std::vector<uint8_t> received(values.size());
    size_t num_received = 0;
    const auto receive_some = [&] {
      const size_t count = std::min<size_t>(100'000, received.size() - num_received);
      EXPECT_TRUE(socket.receive({std::span(received).subspan(num_received, count)}, soon()));
      num_received += count;
    };
    socket.send({all.first(1), {}, all.subspan(1, 1000), all.subspan(1001)}, soon(), receive_some);
    while (num_received < received.size()) receive_some();
    return received;
  };
  auto there = std::async(std::launch::async, [&] { return exchange(*meeting.server); });
  EXPECT_EQ(exchange(*meeting.client), values);
  EXPECT_EQ(there.get(), values);
}

TEST(SecureSocket, TellsAnEndFromACutOffMessage) {
  auto meeting = meet(secret(), secret(), "ps 0", "ps 0");
  const std::vector<uint8_t> three{1, 2, 3};
  meeting.client->send({three}, soon());
  meeting.client.reset();
  std::vector<uint8_t> two(2);
  EXPECT_TRUE(meeting.server->receive({two}, soon()));
  EXPECT_EQ(code_of([&] { meeting.server->receive({two}, soon()); }), std::errc::connection_reset);
  EXPECT_FALSE(meeting.server->receive({two}, soon()));
}

TEST(SecureSocket, AnotherTokenIsRefusedAndBothAreTold) {
  const auto meeting = meet(JobToken::from_text("a guess"), secret(), "ps 0", "ps 0");
  EXPECT_EQ(meeting.client_failure, Reason::kToken);
  EXPECT_EQ(meeting.server_failure, Reason::kToken);
}

TEST(SecureSocket, AnotherServerIsNotReachedAndBothAreTold) {
  const auto meeting = meet(secret(), secret(), "ps 1", "ps 0");
  EXPECT_EQ(meeting.client_failure, Reason::kIdentity);
  EXPECT_EQ(meeting.server_failure, Reason::kIdentity);
}

// An attacker who has taken the port of ps 1 hands the connection on to ps 0.
TEST(SecureSocket, CannotBeLedToAnotherServer) {
  const auto relayed = meet_over_relay({}, "ps 1", "ps 0");
  EXPECT_EQ(relayed.meeting.client_failure, Reason::kIdentity);
  EXPECT_EQ(relayed.meeting.server_failure, Reason::kIdentity);
}

// The attacker writes the other server's name into the handshake.
TEST(SecureSocket, CannotBeLedToAnotherServerByAChangedName) {
  const auto rename = [](std::vector<uint8_t> bytes) {
    const std::string_view wanted = "ps 1";
    const auto at = std::search(bytes.begin(), bytes.end(), wanted.begin(), wanted.end());
    if (at != bytes.end()) at[3] = '0';
    return bytes;
  };
  const auto relayed = meet_over_relay(rename, "ps 1", "ps 0");
  EXPECT_EQ(relayed.meeting.server_failure, Reason::kToken);
  EXPECT_TRUE(relayed.meeting.client_failure.has_value());
}

TEST(SecureSocket, IsRefusedByALaterStartOfTheJob) {
  auto [client, server] = connected_sockets();
  const auto meeting = meet(std::move(client), std::move(server), secret(), secret(), to_server("ps 0"),
                            [](const ChannelIdentity& identity) { return identity.generation == 8; });
  EXPECT_EQ(meeting.client_failure, Reason::kIdentity);
  EXPECT_EQ(meeting.server_failure, Reason::kIdentity);
}

TEST(SecureSocket, RecordedBytesOpenNoConnection) {
  auto relayed = meet_over_relay({});
  const std::vector<uint8_t> message(100, 9);
  relayed.meeting.client->send({message}, soon());
  std::vector<uint8_t> received(100);
  EXPECT_TRUE(relayed.meeting.server->receive({received}, soon()));
  relayed.relay->stop();

  auto [client, server_socket] = connected_sockets();
  client.send({relayed.relay->from_client()}, soon());
  SecureSocket server(std::move(server_socket));
  EXPECT_THROW(server.admit(secret(), admission_of("ps 0"), soon()), HandshakeError);
}

TEST(SecureSocket, NoticesChangedMissingAndRepeatedBytes) {
  const std::vector<uint8_t> message(1000, 9);
  using Bytes = std::vector<uint8_t>;
  const std::vector<Relay::Change> attacks{
      [](Bytes bytes) {
        bytes.back() ^= 1;
        return bytes;
      },
      // The first record, of 5 + 1000 + 1 + 16 bytes, is lost.
      [](Bytes bytes) {
        bytes.erase(bytes.begin(), bytes.begin() + std::min<ptrdiff_t>(1022, std::ssize(bytes)));
        return bytes;
      },
      [](Bytes bytes) {
        const Bytes first = bytes;
        bytes.insert(bytes.end(), first.begin(), first.end());
        return bytes;
      }};
  for (size_t i = 0; i < attacks.size(); ++i) {
    std::atomic<bool> attacks_once{false};
    auto relayed = meet_over_relay([&](Bytes bytes) {
      return attacks_once.exchange(false) ? attacks[i](std::move(bytes)) : std::move(bytes);
    });
    ASSERT_FALSE(relayed.meeting.server_failure);
    attacks_once = true;
    Bytes received(1000);
    for (int count = 0; count < 3; ++count) relayed.meeting.client->send({message}, soon());
    const auto error = code_of([&] {
      while (relayed.meeting.server->receive({received}, soon())) EXPECT_EQ(received, message);
    });
    EXPECT_EQ(error, std::errc::bad_message) << "attack " << i;
  }
}

TEST(SecureSocket, RecognisesOtherPrograms) {
  const std::string request = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  const std::vector<uint8_t> text(request.begin(), request.end());
  for (const auto& bytes : {text, std::vector<uint8_t>(3000, 0xff), std::vector<uint8_t>(3000, 0)}) {
    {
      auto [client, server_socket] = connected_sockets();
      client.send({bytes}, soon());
      SecureSocket server(std::move(server_socket));
      EXPECT_THROW(server.admit(secret(), admission_of("ps 0"), soon()), HandshakeError);
    }
    {
      auto [client_socket, server] = connected_sockets();
      server.send({bytes}, soon());
      SecureSocket client(std::move(client_socket));
      EXPECT_THROW(client.meet(secret(), to_server("ps 0"), soon()), HandshakeError);
    }
  }
}

TEST(SecureSocket, WaitsForASilentPeerNoLongerThanTheDeadline) {
  auto [client, server_socket] = connected_sockets();
  SecureSocket server(std::move(server_socket));
  EXPECT_EQ(code_of([&] { server.admit(secret(), admission_of("ps 0"), soon(milliseconds(50))); }),
            std::errc::timed_out);
}

TEST(SecureSocket, SendsNothingThatCanBeRead) {
  auto relayed = meet_over_relay({});
  const auto values = random_values(100'000);
  relayed.meeting.client->send({values}, soon());
  std::vector<uint8_t> received(values.size());
  EXPECT_TRUE(relayed.meeting.server->receive({received}, soon()));
  relayed.relay->stop();
  const auto& recorded = relayed.relay->from_client();
  ASSERT_GT(recorded.size(), values.size());
  for (size_t begin = 0; begin + 16 <= values.size(); begin += 16) {
    const auto block = std::span(values).subspan(begin, 16);
    ASSERT_EQ(std::search(recorded.begin(), recorded.end(),
                          std::boyer_moore_horspool_searcher(block.begin(), block.end())),
              recorded.end());
  }
}

}  // namespace
}  // namespace lockstep
