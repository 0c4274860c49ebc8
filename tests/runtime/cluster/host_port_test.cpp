#include "lockstep/runtime/cluster/host_port.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

TEST(HostPort, ReadsNamesAndAddresses) {
  const std::vector<std::pair<std::string, HostPort>> cases = {
      {"worker-0.jobs.svc:2222", {.host = "worker-0.jobs.svc", .port = 2222}},
      {"node_1:1", {.host = "node_1", .port = 1}},
      {"3com.example.:80", {.host = "3com.example.", .port = 80}},
      {"10.0.0.255:65535", {.host = "10.0.0.255", .port = 65535}},
      {"[::1]:8888", {.host = "::1", .port = 8888}},
      {"[fe80::1%eth0]:8888", {.host = "fe80::1%eth0", .port = 8888}},
      {"a:00080", {.host = "a", .port = 80}},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(parse_host_port(text), expected) << text;
}

TEST(HostPort, GivesEqualAddressesForOtherSpellings) {
  EXPECT_EQ(parse_host_port("Worker-A.Example:80"), parse_host_port("worker-a.example:80"));
  EXPECT_EQ(parse_host_port("[FD00:0:0::0001]:80"), parse_host_port("[fd00::1]:80"));
}

TEST(HostPort, WritesWhatItReads) {
  for (const std::string text : {"a:1", "10.0.0.1:80", "[::1]:8888", "[fe80::1%eth0]:8888"}) {
    EXPECT_EQ(parse_host_port(text).str(), text);
  }
}

TEST(HostPort, SaysWhatIsWrong) {
  const std::string port = "a port from 1 to 65535";
  const std::string host = "a name or an address as host";
  const std::string ipv4 = "four numbers from 0 to 255 as IPv4 address";
  const std::string ipv6 = "an IPv6 address in the brackets";
  const std::string brackets = "an IPv6 address in brackets, such as [::1]:8888";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "a port"},
      {"a", "a port"},
      {"[::1]", "a port"},
      {"[::1]8888", "a port"},
      {"[::1:8888", "a closing bracket"},
      {"a:", port},
      {"a:0", port},
      {"a:65536", port},
      {"a:99999", port},
      {"a:-1", port},
      {"a:+1", port},
      {"a: 1", port},
      {"a:1 ", port},
      {"a:80x", port},
      {"a:0.9", port},
      {"a:000001", port},
      {"a:18446744073709551617", port},
      {":80", host},
      {" a:80", host},
      {"a b:80", host},
      {"a..b:80", host},
      {"-a:80", host},
      {"a-:80", host},
      {".:80", host},
      {"http://a:80", host},
      {"a:80:80", host},
      {"user@a:80", host},
      {std::string(64, 'a') + ":80", host},
      {"1.2.3:80", ipv4},
      {"1.2.3.256:80", ipv4},
      {"1.2.3.4.5:80", ipv4},
      {"12:80", ipv4},
      {"[]:80", ipv6},
      {"[a]:80", ipv6},
      {"[1.2.3.4]:80", ipv6},
      {"[::1%]:80", ipv6},
      {"[::1%a b]:80", ipv6},
      {"::1", brackets},
      {"fd00::2:8888", brackets},
      {"1:2:3:4:5:6:7:8:8888", brackets},
  };
  for (const auto& [text, detail] : cases) {
    std::string message = "[HostPort] expected the address to be host:port with ";
    message.append(detail).append(", but got '").append(text).append("'");
    EXPECT_EQ(message_of<InvalidArgument>([&text = text] { parse_host_port(text); }), message);
  }
}

TEST(HostPort, RefusesBytesThatAreNoTextAndShortensThem) {
  const std::string message = message_of<InvalidArgument>(
      [] { parse_host_port(std::string("a\0b\n\xFF", 5) + std::string(1000, 'x') + ":1"); });
  EXPECT_EQ(message,
            "[HostPort] expected the address to be host:port with a name or an address as host, but got "
            "'a\\x00b\\x0a\\xff" +
                std::string(63, 'x') + "...'");
}

TEST(HostPort, ReadsAHostAlone) {
  const ConfigurationValue value{.source = "torchrun", .name = "MASTER_ADDR"};
  EXPECT_EQ(parse_host("Node1", value), "node1");
  EXPECT_EQ(parse_host("fd00::02", value), "fd00::2");
  EXPECT_EQ(parse_host("[fd00::2]", value), "fd00::2");
  EXPECT_EQ(message_of<InvalidArgument>([&] { parse_host("", value); }),
            "[torchrun] expected MASTER_ADDR to be a name or an address as host, but got ''");
  EXPECT_EQ(message_of<InvalidArgument>([&] { parse_host("a:80", value); }),
            "[torchrun] expected MASTER_ADDR to be a name or an address as host, but got 'a:80'");
}

TEST(ConfigurationValue, ExcerptIsAtMost80CharactersLong) {
  EXPECT_EQ(excerpt(std::string(80, 'a')), std::string(80, 'a'));
  EXPECT_EQ(excerpt(std::string(81, 'a')), std::string(77, 'a') + "...");
  // The escaped byte takes four characters: it does not fit, and is not cut in two.
  EXPECT_EQ(excerpt(std::string(76, 'a') + "\x01" + "b"), std::string(76, 'a') + "...");
}

}  // namespace
}  // namespace lockstep
