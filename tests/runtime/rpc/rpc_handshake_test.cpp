#include "lockstep/runtime/rpc/rpc_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr uint64_t kLimit = 12345;
constexpr size_t kClientHelloBytes = 4 + 2 + 32 + 32;
constexpr size_t kServerGreetingBytes = 4 + 2 + 32;

std::future<bool> admit(StreamSocket& server, const std::string& token,
                        milliseconds time = std::chrono::seconds(60)) {
  return std::async(std::launch::async, [&server, token, time] {
    return admit_client(server, job_token_of(token), kLimit, soon(time));
  });
}

TEST(RpcHandshake, ThoseOfOneTokenMeet) {
  auto [client, server] = connected_sockets();
  auto admitted = admit(server, "secret");
  EXPECT_EQ(meet_server(client, job_token_of("secret"), soon()), kLimit);
  EXPECT_TRUE(admitted.get());
}

TEST(RpcHandshake, AJobWithoutATokenIsAJobOfItsOwn) {
  auto [client, server] = connected_sockets();
  auto admitted = admit(server, "");
  EXPECT_EQ(meet_server(client, job_token_of(""), soon()), kLimit);
  EXPECT_TRUE(admitted.get());
}

TEST(RpcHandshake, AnotherTokenIsRefusedAndBothAreTold) {
  for (const auto& [theirs, ours] : {std::pair{"secret", "guess"}, {"secret", ""}, {"", "guess"}}) {
    auto [client, server] = connected_sockets();
    auto admitted = admit(server, theirs);
    EXPECT_THAT(([&, &client = client, &ours = ours] { meet_server(client, job_token_of(ours), soon()); }),
                ThrowsMessage<ClusterError>(HasSubstr("expected the job's token, but got another")));
    EXPECT_FALSE(admitted.get());
  }
}

TEST(RpcHandshake, AServerThatTakesAnybodyIsNotTaken) {
  // The server accepts a token that it does not know.
  auto [client, server] = connected_sockets();
  auto impostor = std::async(std::launch::async, [&server = server] {
    std::vector<uint8_t> greeting{'L', 'S', 'P', 'H', 1, 0};
    greeting.resize(kServerGreetingBytes);
    server.send({greeting}, soon());
    std::vector<uint8_t> hello(kClientHelloBytes);
    server.receive({hello}, soon());
    std::vector<uint8_t> answer(1 + 8 + 32, 1);
    server.send({answer}, soon());
  });
  EXPECT_THROW(meet_server(client, job_token_of("secret"), soon()), ClusterError);
  impostor.get();
}

TEST(RpcHandshake, WhatWasRecordedOnceAdmitsNobody) {
  std::vector<uint8_t> recorded(kClientHelloBytes);
  {
    auto [client, middle_client] = connected_sockets();
    auto [middle_server, server] = connected_sockets();
    auto admitted = admit(server, "secret");
    auto met = std::async(std::launch::async,
                          [&client = client] { return meet_server(client, job_token_of("secret"), soon()); });
    std::vector<uint8_t> greeting(kServerGreetingBytes);
    middle_server.receive({greeting}, soon());
    middle_client.send({greeting}, soon());
    middle_client.receive({recorded}, soon());
    middle_server.send({recorded}, soon());
    EXPECT_TRUE(admitted.get());
    middle_client.shut();
    EXPECT_THROW(met.get(), std::system_error);
  }
  auto [client, server] = connected_sockets();
  auto admitted = admit(server, "secret");
  client.send({recorded}, soon());
  EXPECT_FALSE(admitted.get());
}

TEST(RpcHandshake, OthersAreRecognised) {
  const std::string request = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  const std::vector<uint8_t> bytes(request.begin(), request.end());
  {
    auto [client, server] = connected_sockets();
    auto admitted = admit(server, "secret");
    client.send({bytes}, soon());
    EXPECT_THROW(admitted.get(), InvalidArgument);
  }
  {
    auto [client, server] = connected_sockets();
    server.send({bytes}, soon());
    EXPECT_THAT(([&, &client = client] { meet_server(client, job_token_of("secret"), soon()); }),
                ThrowsMessage<ClusterError>(HasSubstr("protocol of parameter servers")));
  }
}

TEST(RpcHandshake, ASilentClientIsWaitedForNoLongerThanTheDeadline) {
  auto [client, server] = connected_sockets();
  auto admitted = admit(server, "secret", milliseconds(50));
  EXPECT_THROW(admitted.get(), std::system_error);
}

}  // namespace
}  // namespace lockstep
