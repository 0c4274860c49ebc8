#include "lockstep/runtime/rpc/rpc_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const ReceiveLimits kAnySize{.max_bytes = uint64_t{1} << 40, .begin = StreamSocket::kNoDeadline};

struct SecurePair {
  SecureSocket client;
  SecureSocket server;
};

SecurePair secure_sockets() {
  auto [client_socket, server_socket] = connected_sockets();
  SecurePair pair{.client = SecureSocket(std::move(client_socket)),
                  .server = SecureSocket(std::move(server_socket))};
  const auto token = JobToken::random();
  auto admitted = std::async(std::launch::async, [&] {
    pair.server.admit(
        token, [](const ChannelIdentity&) { return true; }, soon());
  });
  pair.client.meet(token, {.purpose = kRpcPurpose}, soon());
  admitted.get();
  return pair;
}

IncomingMessage sent_and_received(RpcKind kind, RpcMessage message) {
  auto [client, server] = secure_sockets();
  const OutgoingMessage outgoing(kind, std::move(message));
  auto sent = std::async(std::launch::async,
                         [&, &client = client] { outgoing.send(client, std::chrono::minutes(1)); });
  IncomingMessage incoming;
  EXPECT_TRUE(receive_message(server, kAnySize, incoming));
  sent.get();
  return incoming;
}

TEST(RpcMessage, ComesAsItWent) {
  const std::vector<at::Tensor> tensors{
      torch::randn({3, 5}),
      torch::randn({2}, torch::kDouble),
      torch::randn({4}).to(torch::kHalf),
      torch::randn({4}).to(torch::kBFloat16),
      torch::arange(7),
      torch::arange(7, torch::kInt),
      torch::arange(7, torch::kByte),
      torch::full({}, 3.5),
      torch::empty({0, 4}),
      torch::randn({1000, 1000}),  // larger than the system's buffers
  };
  const auto got = sent_and_received(RpcKind::kReply, {.fields = {1, 2, 3}, .tensors = tensors});
  EXPECT_EQ(got.kind, RpcKind::kReply);
  EXPECT_EQ(got.message.fields, (std::vector<uint8_t>{1, 2, 3}));
  ASSERT_EQ(got.message.tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(got.message.tensors[i].scalar_type(), tensors[i].scalar_type());
    EXPECT_TRUE(got.message.tensors[i].equal(tensors[i])) << i;
  }
}

TEST(RpcMessage, CanHaveNothingInIt) {
  const auto got = sent_and_received(RpcKind::kRequest, {});
  EXPECT_TRUE(got.message.fields.empty());
  EXPECT_TRUE(got.message.tensors.empty());
}

TEST(RpcMessage, TakesTensorsThatLieElsewhereInMemoryThanInARow) {
  const auto whole = torch::randn({6, 4});
  const auto got = sent_and_received(
      RpcKind::kRequest, {.tensors = {whole.t(), whole.narrow(0, 2, 2), whole.clone().requires_grad_()}});
  EXPECT_TRUE(got.message.tensors[0].equal(whole.t()));
  EXPECT_TRUE(got.message.tensors[1].equal(whole.narrow(0, 2, 2)));
  EXPECT_TRUE(got.message.tensors[2].equal(whole));
}

TEST(RpcMessage, RefusesToSendWhatItCannotCarry) {
  const auto refused = [](const at::Tensor& tensor) {
    return [tensor] { OutgoingMessage(RpcKind::kRequest, {.tensors = {tensor}}); };
  };
  EXPECT_THAT(refused(torch::zeros({2}, torch::kComplexFloat)),
              ThrowsMessage<InvalidArgument>(HasSubstr("dtype that messages carry")));
  EXPECT_THROW(refused(torch::eye(3).to_sparse())(), InvalidArgument);
  EXPECT_THROW(refused(at::Tensor())(), InvalidArgument);
}

// Messages that holders of the token could send by mistake, or from a program of another version.

void send_raw(SecureSocket& socket, const RpcFrame& frame, const std::vector<uint8_t>& rest) {
  const auto bytes = encode_frame(frame);
  socket.send({bytes, rest}, soon());
}

TEST(RpcMessage, TakesNoMemoryForAMessageThatIsTooLarge) {
  auto [client, server] = secure_sockets();
  // The frame announces a tebibyte.
  send_raw(client, {.head_bytes = 10, .tensor_bytes = uint64_t{1} << 40}, {});
  IncomingMessage incoming;
  const ReceiveLimits limits{.max_bytes = 1000};
  EXPECT_THAT(
      ([&, &server = server] { receive_message(server, limits, incoming); }),
      ThrowsMessage<InvalidArgument>(HasSubstr("1000 bytes or less, but got one of 10 and 1099511627776")));
  send_raw(client, {.head_bytes = 981, .tensor_bytes = 0}, {});
  EXPECT_THROW(receive_message(server, limits, incoming), InvalidArgument);
}

TEST(RpcMessage, RefusesShapesOfAnotherSizeThanTheMessage) {
  auto [client, server] = secure_sockets();
  const auto head = encode_head({.tensors = {{RpcDtype::kFloat32, {1 << 30}}}});
  send_raw(client, {.head_bytes = static_cast<uint32_t>(head.size()), .tensor_bytes = 4}, head);
  IncomingMessage incoming;
  EXPECT_THAT(([&, &server = server] { receive_message(server, kAnySize, incoming); }),
              ThrowsMessage<InvalidArgument>(HasSubstr("expected 4 bytes of tensors")));
}

TEST(RpcMessage, TellsACutOffMessageFromAnEnd) {
  const auto head = encode_head({.tensors = {{RpcDtype::kFloat32, {4}}}});
  const RpcFrame frame{.head_bytes = static_cast<uint32_t>(head.size()), .tensor_bytes = 16};
  auto with_half = head;
  with_half.resize(head.size() + 8);
  for (const auto& sent : {std::vector<uint8_t>{}, head, with_half}) {
    auto [client, server] = secure_sockets();
    send_raw(client, frame, sent);
    client.shut();
    IncomingMessage incoming;
    EXPECT_EQ(code_of([&, &server = server] { receive_message(server, kAnySize, incoming); }),
              std::errc::connection_reset);
  }
  auto [client, server] = secure_sockets();
  client.shut();
  IncomingMessage incoming;
  EXPECT_FALSE(receive_message(server, kAnySize, incoming));
}

TEST(RpcMessage, WaitsForTheRestNoLongerThanTheTimeout) {
  auto [client, server] = secure_sockets();
  send_raw(client, {.head_bytes = 10}, {});
  IncomingMessage incoming;
  const ReceiveLimits limits{.max_bytes = 1000, .timeout = milliseconds(50)};
  EXPECT_EQ(code_of([&, &server = server] { receive_message(server, limits, incoming); }),
            std::errc::timed_out);
}

}  // namespace
}  // namespace lockstep
