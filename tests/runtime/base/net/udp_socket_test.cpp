#include "lockstep/runtime/base/net/udp_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

// Only a failing test waits this long.
constexpr std::chrono::seconds kSocketPatience{20};

std::chrono::steady_clock::time_point socket_deadline() {
  return std::chrono::steady_clock::now() + kSocketPatience;
}

/// Null if the machine has no such address.
std::unique_ptr<UdpSocket> socket_at(const std::string& address) {
  try {
    return std::make_unique<UdpSocket>(address);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

class UdpSocketTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!socket_at(GetParam())) GTEST_SKIP() << "this machine has no address " << GetParam();
  }
};

TEST_P(UdpSocketTest, DeliversDatagramsWithTheirSizes) {
  UdpSocket sender(GetParam());
  UdpSocket receiver(GetParam());
  std::array<uint8_t, 4> buffer{};
  EXPECT_EQ(receiver.receive(buffer), std::nullopt);

  const SocketAddress address = sender.resolve(GetParam(), receiver.port());
  EXPECT_TRUE(sender.send_to(address, std::array<uint8_t, 3>{7, 8, 9}));
  EXPECT_TRUE(sender.send_to(address, std::array<uint8_t, 5>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(sender.send_to(address, {}));
  receiver.wait_until(socket_deadline());
  EXPECT_EQ(receiver.receive(buffer), 3u);
  EXPECT_EQ(buffer, (std::array<uint8_t, 4>{7, 8, 9, 0}));
  EXPECT_EQ(receiver.receive(buffer), 5u) << "longer than the buffer";
  EXPECT_EQ(buffer, (std::array<uint8_t, 4>{1, 2, 3, 4}));
  EXPECT_EQ(receiver.receive(buffer), 0u);
  EXPECT_EQ(receiver.receive(buffer), std::nullopt);
}

TEST_P(UdpSocketTest, NamesTheReceiverThatIsGone) {
  UdpSocket sender(GetParam());
  UdpSocket present(GetParam());
  auto gone = std::make_unique<UdpSocket>(GetParam());
  const SocketAddress address_of_gone = sender.resolve(GetParam(), gone->port());
  const SocketAddress address_of_present = sender.resolve(GetParam(), present.port());
  gone.reset();

  EXPECT_EQ(sender.receive_refusal(), std::nullopt);
  EXPECT_TRUE(sender.send_to(address_of_gone, std::array<uint8_t, 1>{1}));
  sender.wait_until(socket_deadline());
  EXPECT_TRUE(sender.send_to(address_of_present, std::array<uint8_t, 1>{2})) << "with an error pending";
  EXPECT_EQ(sender.receive_refusal(), address_of_gone);
  EXPECT_EQ(sender.receive_refusal(), std::nullopt);
  EXPECT_FALSE(address_of_gone == address_of_present);
  std::array<uint8_t, 1> buffer{};
  present.wait_until(socket_deadline());
  EXPECT_EQ(present.receive(buffer), 1u);
  EXPECT_EQ(buffer[0], 2);
}

INSTANTIATE_TEST_SUITE_P(Families, UdpSocketTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& info) { return info.param[0] == ':' ? "IPv6" : "IPv4"; });

TEST(UdpSocket, ListensOnItsOwnAddressOnly) {
  UdpSocket receiver("127.0.0.1");
  UdpSocket sender("127.0.0.1");
  const SocketAddress another = sender.resolve("127.0.0.2", receiver.port());
  EXPECT_TRUE(sender.send_to(another, std::array<uint8_t, 1>{1}));
  sender.wait_until(socket_deadline());
  EXPECT_EQ(sender.receive_refusal(), another);
}

TEST(UdpSocket, NamesTheAddressItCannotHave) {
  EXPECT_THAT([] { UdpSocket("203.0.113.1", 4711); },
              Throws<std::system_error>(Property(&std::system_error::what, HasSubstr("203.0.113.1:4711: "))));
  EXPECT_THAT(
      [] { UdpSocket("2001:db8::1", 4711); },
      Throws<std::system_error>(Property(&std::system_error::what, HasSubstr("[2001:db8::1]:4711: "))));
  const UdpSocket taken("127.0.0.1");
  EXPECT_THAT([&] { UdpSocket("127.0.0.1", taken.port()); },
              Throws<std::system_error>(Property(
                  &std::system_error::what,
                  HasSubstr("127.0.0.1:" + std::to_string(taken.port()) + ": Address already in use"))));
}

TEST(UdpSocket, NamesTheHostItCannotFind) {
  const UdpSocket v4("127.0.0.1");
  EXPECT_THAT([&] { v4.resolve("::1", 1234); },
              Throws<std::system_error>(Property(&std::system_error::what, HasSubstr("[::1]:1234: "))))
      << "of the other family";
}

TEST(UdpSocket, WaitsUntilItsDeadlineOrAnInterruption) {
  UdpSocket socket("127.0.0.1");
  const auto begin = std::chrono::steady_clock::now();
  socket.wait_until(begin + std::chrono::milliseconds(50));
  EXPECT_GE(std::chrono::steady_clock::now(), begin + std::chrono::milliseconds(50));
  socket.wait_until(begin);  // already past

  std::thread other([&] { socket.interrupt(); });
  socket.wait_until(socket_deadline());
  EXPECT_LT(std::chrono::steady_clock::now(), begin + kSocketPatience);
  other.join();
}

}  // namespace
}  // namespace lockstep
