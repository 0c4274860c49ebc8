#include "lockstep/runtime/base/net/stream_socket.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Parts = std::vector<std::span<const uint8_t>>;

std::vector<uint8_t> counted_bytes(size_t size, uint8_t first) {
  std::vector<uint8_t> bytes(size);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

TEST(StreamSocket, CarriesPartsOfAnySizeInBothDirectionsAtOnce) {
  auto [client, server] = connected_sockets();
  // Larger than the system's buffers, and in more parts than one system call takes.
  constexpr size_t kSize = size_t{20} << 20;
  const auto there = counted_bytes(kSize, 1);
  const auto back = counted_bytes(kSize, 100);
  Parts small;
  for (size_t i = 0; i < 1000; ++i) small.push_back(std::span(there).subspan(i * 7, i % 3 == 0 ? 0 : 7));
  std::thread other([&, &server = server] {
    server.send({back}, soon());
    std::vector<uint8_t> received(kSize);
    EXPECT_TRUE(server.receive({received}, soon()));
    EXPECT_EQ(received, there);
    std::vector<uint8_t> flat;
    for (const auto& part : small) flat.insert(flat.end(), part.begin(), part.end());
    std::vector<uint8_t> first(100);
    std::vector<uint8_t> rest(flat.size() - 100);
    EXPECT_TRUE(server.receive({first, {}, rest}, soon()));
    first.insert(first.end(), rest.begin(), rest.end());
    EXPECT_EQ(first, flat);
  });
  std::thread sending([&, &client = client] {
    client.send({there}, soon());
    client.send(small, soon());
  });
  std::vector<uint8_t> received(kSize);
  EXPECT_TRUE(client.receive({received}, soon()));
  EXPECT_EQ(received, back);
  sending.join();
  other.join();
}

TEST(StreamSocket, TellsAnEndFromACutOffMessage) {
  auto [client, server] = connected_sockets();
  const std::vector<uint8_t> three{1, 2, 3};
  client.send({three}, soon());
  client.shut();
  std::vector<uint8_t> two(2);
  EXPECT_TRUE(server.receive({two}, soon()));
  EXPECT_EQ(code_of([&, &server = server] { server.receive({two}, soon()); }), std::errc::connection_reset);
  EXPECT_FALSE(server.receive({two}, soon()));
  EXPECT_TRUE(server.receive({}, soon()));  // an empty read needs no data
}

TEST(StreamSocket, WaitsToItsDeadline) {
  auto [client, server] = connected_sockets();
  std::vector<uint8_t> one(1);
  const auto begin = StreamSocket::Clock::now();
  EXPECT_EQ(code_of([&, &client = client] { client.receive({one}, soon(milliseconds(50))); }),
            std::errc::timed_out);
  EXPECT_GE(StreamSocket::Clock::now() - begin, milliseconds(50));
  // Nobody reads, so the system's buffers fill up.
  const std::vector<uint8_t> large(size_t{64} << 20);
  EXPECT_EQ(code_of([&, &client = client] { client.send({large}, soon(milliseconds(50))); }),
            std::errc::timed_out);
}

TEST(StreamSocket, EndsItsWaitsWhereItIsShut) {
  auto [client, server] = connected_sockets();
  std::optional<bool> received;
  std::thread waiting([&, &client = client] {
    std::vector<uint8_t> one(1);
    received = client.receive({one}, StreamSocket::kNoDeadline);
  });
  std::this_thread::sleep_for(milliseconds(20));
  client.shut();
  waiting.join();
  EXPECT_EQ(received, false);
  const std::vector<uint8_t> one(1);
  EXPECT_EQ(code_of([&, &client = client] { client.send({one}, soon()); }), std::errc::broken_pipe);
}

TEST(StreamSocket, SaysThatNobodyListens) {
  const TcpListener bound("127.0.0.1", 0);  // bound, but not listening
  EXPECT_EQ(code_of([&] { StreamSocket::connect("127.0.0.1", bound.port(), soon()); }),
            std::errc::connection_refused);
}

// Linux gives connecting sockets every second port of its range, and listening ones the others. Each port of
// the first kind is sooner or later tried from its own address.
TEST(StreamSocket, IsNotConnectedToItself) {
  const int port = TcpListener("127.0.0.1", 0).port() ^ 1;
  constexpr int kAttempts = 20'000;
  for (int i = 0; i < kAttempts; ++i)
    ASSERT_EQ(code_of([&] { StreamSocket::connect("127.0.0.1", port, soon()); }),
              std::errc::connection_refused)
        << i;
}

}  // namespace
}  // namespace lockstep
