#include "lockstep/runtime/rpc/rpc_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/rpc/rpc_server.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RpcMessage echoed(RpcMessage request) {
  return request;
}

RpcClientOptions options_of(int port) {
  return {.name = "server 0", .host = "127.0.0.1", .port = port, .token = "secret"};
}

/// A server that replies to nothing until it is destroyed.
class SilentServer {
 public:
  ~SilentServer() { ends_.set_value(); }
  int port() const { return server_.port(); }

 private:
  std::promise<void> ends_;
  RpcServer server_{{.token = "secret"}, [ended = ends_.get_future().share()](RpcMessage request) {
                      ended.wait();
                      return request;
                    }};
};

TEST(RpcClient, WaitsForAServerThatStartsLater) {
  int port = 0;
  {
    const TcpListener bound("127.0.0.1", 0);
    port = bound.port();
  }
  std::unique_ptr<RpcServer> server;
  std::thread starting([&] {
    std::this_thread::sleep_for(milliseconds(100));
    server = std::make_unique<RpcServer>(RpcServerOptions{.port = port, .token = "secret"}, echoed);
  });
  RpcClient client(options_of(port));
  EXPECT_EQ(client.call({.fields = {1}}).fields.size(), 1U);
  starting.join();
}

TEST(RpcClient, ConnectsToNobodyWithoutAToken) {
  const TcpListener bound("127.0.0.1", 0);
  auto options = options_of(bound.port());
  options.token.clear();
  EXPECT_THROW(RpcClient{options}, InvalidArgument);
}

TEST(RpcClient, NamesAServerThatIsNotThere) {
  const TcpListener bound("127.0.0.1", 0);
  auto options = options_of(bound.port());
  options.connect_timeout = milliseconds(50);
  EXPECT_THAT([&] { RpcClient{options}; },
              ThrowsMessage<PeerLost>(AllOf(HasSubstr("server 0 (127.0.0.1:" + std::to_string(bound.port())),
                                            HasSubstr("within 0.05 s"), HasSubstr("Connection refused"))));
}

TEST(RpcClient, NamesAServerThatTakesConnectionsAndSaysNothing) {
  const TcpListener bound("127.0.0.1", 0);
  ASSERT_EQ(listen(bound.descriptor(), 1), 0);  // like the socket of a stopped process
  auto options = options_of(bound.port());
  options.connect_timeout = milliseconds(50);
  EXPECT_THAT([&] { RpcClient{options}; }, ThrowsMessage<PeerLost>(HasSubstr("no answer within 0.05 s")));
}

TEST(RpcClient, GivesUpAServerThatDoesNotReply) {
  const SilentServer server;
  auto options = options_of(server.port());
  options.call_timeout = milliseconds(50);
  RpcClient client(options);
  EXPECT_THAT([&] { client.call({}); }, ThrowsMessage<PeerLost>(HasSubstr("no answer within 0.05 s")));
  // The late reply is not taken for the reply to another request.
  EXPECT_THAT([&] { client.call({}); }, ThrowsMessage<PeerLost>(HasSubstr("the connection was lost before")));
}

TEST(RpcClient, NamesAServerThatIsGone) {
  auto server = std::make_unique<RpcServer>(RpcServerOptions{.token = "secret"}, echoed);
  RpcClient client(options_of(server->port()));
  client.call({});
  server.reset();
  EXPECT_THROW(client.call({}), PeerLost);
  EXPECT_THROW(client.call({}), PeerLost);
}

TEST(RpcClient, SendsRequestsWhileReplyAfterReplyComes) {
  // More than the system buffers in both directions: the server stops reading until its replies are taken.
  constexpr int kRequests = 30;
  constexpr int64_t kNumbers = int64_t{1} << 19;  // 4 MiB
  RpcServer server({.token = "secret"}, echoed);
  RpcClient client(options_of(server.port()));
  for (int i = 0; i < kRequests; ++i) client.send({.tensors = {torch::full({kNumbers}, i)}});
  for (int i = 0; i < kRequests; ++i)
    EXPECT_TRUE(client.receive().tensors.at(0).equal(torch::full({kNumbers}, i))) << i;
  EXPECT_THROW(client.receive(), InvalidArgument);  // no request is left
  EXPECT_EQ(client.call({.fields = {1}}).fields.size(), 1U);
}

TEST(RpcClient, TakesNoReplyThatIsNone) {
  // A server that knows the token but then speaks another protocol.
  const TcpListener listener("127.0.0.1", 0);
  ASSERT_EQ(listen(listener.descriptor(), 1), 0);
  std::thread speaking([&] {
    SecureSocket socket(StreamSocket(accept(listener.descriptor(), nullptr, nullptr)));
    socket.admit(
        JobToken::from_text("secret"), [](const ChannelIdentity&) { return true; }, soon());
    const std::vector<uint8_t> limit{0xff, 0xff, 0, 0, 0, 0, 0, 0};
    socket.send({limit}, soon());
    const std::vector<uint8_t> garbage(100, 0x55);
    socket.send({garbage}, soon());
    std::vector<uint8_t> end(1000);
    code_of([&] { socket.receive({end}, soon()); });
  });
  {
    RpcClient client(options_of(listener.port()));
    EXPECT_THAT([&] { client.call({}); },
                ThrowsMessage<PeerLost>(HasSubstr("expected a message of Lockstep's")));
  }
  speaking.join();
}

}  // namespace
}  // namespace lockstep
