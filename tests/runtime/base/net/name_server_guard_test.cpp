#include "lockstep/runtime/base/net/name_server_guard.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <thread>

#include "lockstep/runtime/base/net/udp_socket.h"

namespace lockstep {
namespace {

// RFC 5737 reserves this address for documentation: nobody has it.
constexpr const char* kAddress = "203.0.113.7";

/// The name of an address, or the address itself if it has none, looked up as c10d's store client does.
std::string name_of(const std::string& address) {
  sockaddr_in6 given{};
  given.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, ("::ffff:" + address).c_str(), &given.sin6_addr), 1);
  std::array<char, NI_MAXHOST> host{};
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&given), sizeof given, host.data(),
                                host.size(), nullptr, 0, NI_NUMERICSERV);
  return error == 0 ? host.data() : gai_strerror(error);
}

bool is_known(const std::string& name) {
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

/// A name server that never answers. A thread that uses it asks once and waits a second.
class SilentNameServer {
 public:
  void use() const {
    ASSERT_EQ(res_ninit(&_res), 0);
    _res.nscount = 1;
    _res.nsaddr_list[0].sin_family = AF_INET;
    _res.nsaddr_list[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    _res.nsaddr_list[0].sin_port = htons(static_cast<uint16_t>(socket_.port()));
    _res.retrans = 1;
    _res.retry = 1;
  }
  int num_questions() {
    std::array<uint8_t, NS_PACKETSZ> question{};
    int count = 0;
    while (socket_.receive(question)) ++count;
    return count;
  }

 private:
  UdpSocket socket_{"127.0.0.1"};
};

/// The resolver's state belongs to the thread and ends with it.
template <typename Work>
void in_a_thread(Work work) {
  std::thread(work).join();
}

TEST(NameServerGuard, AnAddressHasNoNameAndNobodyIsAsked) {
  SilentNameServer server;
  in_a_thread([&] {
    server.use();
    const NameServerGuard without;
    EXPECT_EQ(name_of(kAddress), std::string("::ffff:") + kAddress);
    EXPECT_FALSE(is_known("node7.example"));
  });
  EXPECT_EQ(server.num_questions(), 0);
}

// Without the guard, the name server is asked: the test above can fail.
TEST(NameServerGuard, ANameServerIsAskedWhereThereIsNone) {
  SilentNameServer server;
  in_a_thread([&] {
    server.use();
    EXPECT_NE(name_of(kAddress), std::string("::ffff:") + kAddress);
  });
  EXPECT_GT(server.num_questions(), 0);
}

TEST(NameServerGuard, AddressesAndTheMachinesOwnNamesAreKnown) {
  in_a_thread([] {
    const NameServerGuard without;
    EXPECT_TRUE(is_known("127.0.0.1"));
    EXPECT_TRUE(is_known("::1"));
    EXPECT_TRUE(is_known("localhost"));
  });
}

TEST(NameServerGuard, OtherThreadsAskTheirs) {
  SilentNameServer server;
  in_a_thread([&] {
    const NameServerGuard without;
    in_a_thread([&] {
      server.use();
      name_of(kAddress);
    });
  });
  EXPECT_GT(server.num_questions(), 0);
}

TEST(NameServerGuard, LeavesTheThreadTheSystemsNameServers) {
  in_a_thread([] {
    ASSERT_EQ(res_ninit(&_res), 0);
    const int count = _res.nscount;
    const sockaddr_in first = _res.nsaddr_list[0];
    {
      const NameServerGuard without;
      EXPECT_NE(_res.nsaddr_list[0].sin_port, first.sin_port);
    }
    EXPECT_EQ(_res.nscount, count);
    EXPECT_EQ(_res.nsaddr_list[0].sin_addr.s_addr, first.sin_addr.s_addr);
    EXPECT_EQ(_res.nsaddr_list[0].sin_port, first.sin_port);
    res_nclose(&_res);
  });
}

}  // namespace
}  // namespace lockstep
