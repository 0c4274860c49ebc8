#include "lockstep/runtime/rpc/rpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <torch/types.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/rpc/rpc_client.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::StrEq;
using ::testing::Throws;
using ::testing::ThrowsMessage;

RpcMessage doubled(const RpcMessage& request) {
  RpcMessage reply{.fields = request.fields};
  for (const auto& tensor : request.tensors) reply.tensors.push_back(tensor * 2);
  return reply;
}

RpcClientOptions options_for(const RpcServer& server, const std::string& token = "secret") {
  return {.name = "server 7", .host = "127.0.0.1", .port = server.port(), .token = token};
}

template <typename Condition>
bool comes_true(const Condition& condition) {
  const auto deadline = soon();
  while (!condition() && StreamSocket::Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
  return condition();
}

std::vector<StreamSocket> connections_to(const RpcServer& server, int count) {
  std::vector<StreamSocket> connections;
  connections.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    connections.push_back(StreamSocket::connect("127.0.0.1", server.port(), soon()));
  return connections;
}

auto num_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return std::distance(begin(entries), end(entries));
}

// All addresses of 127.0.0.0/8 lead to this machine.
TEST(RpcServer, ListensOnTheAddressThatItIsGivenAndNoOther) {
  RpcServer server({.host = "127.0.0.2", .token = "secret"}, doubled);
  auto options = options_for(server);
  options.connect_timeout = milliseconds(300);
  for (const std::string other : {"127.0.0.1", "127.0.0.3"}) {
    options.host = other;
    EXPECT_THAT([&] { RpcClient{options}; }, ThrowsMessage<PeerLost>(HasSubstr("Connection refused")));
  }
  options.host = "127.0.0.2";
  EXPECT_EQ(RpcClient(options).call({.fields = {1}}).fields.size(), 1U);
}

TEST(RpcServer, AnswersRequestsOfManyClients) {
  RpcServer server({.token = "secret"}, doubled);
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      RpcClient client(options_for(server));
      for (int call = 0; call < 20; ++call) {
        const auto values = torch::full({100, call}, i);
        const auto reply = client.call({.fields = {static_cast<uint8_t>(call)}, .tensors = {values}});
        EXPECT_EQ(reply.fields, (std::vector<uint8_t>{static_cast<uint8_t>(call)}));
        EXPECT_TRUE(reply.tensors.at(0).equal(values * 2));
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(server.counts().requests, 160U);
  EXPECT_EQ(server.counts().failed_requests, 0U);
  EXPECT_TRUE(comes_true([&] { return server.num_connections() == 0; }));
}

TEST(RpcServer, HandlesSeveralClientsAtTheSameTime) {
  std::latch both(2);
  RpcServer server({.token = "secret"}, [&](RpcMessage) {
    both.arrive_and_wait();  // waits forever if requests are handled one after another
    return RpcMessage{};
  });
  RpcClient one(options_for(server));
  RpcClient other(options_for(server));
  one.send({});
  other.send({});
  one.receive();
  other.receive();
}

TEST(RpcServer, GivesItsHandlersErrorsToTheClient) {
  RpcServer server({.token = "secret"}, [](RpcMessage request) -> RpcMessage {
    switch (request.fields.at(0)) {
      case 0:
        throw InvalidArgument("no such shard\nand more");
      case 1:
        throw ClusterError("no such cluster");
      case 2:
        throw std::bad_alloc();
      case 3:
        throw std::runtime_error("no luck");
      case 4:
        throw std::system_error(ENOSPC, std::generic_category(), "cannot write 'a'");
      case 5:
        throw PeerLost("worker 2 was lost");
      default:
        return {.tensors = {at::Tensor()}};  // cannot be sent
    }
  });
  RpcClient client(options_for(server));
  const auto name = "server 7 (127.0.0.1:" + std::to_string(server.port()) + "): ";
  const auto ask = [&](uint8_t which) { return [&, which] { client.call({.fields = {which}}); }; };
  EXPECT_THAT(ask(0), ThrowsMessage<InvalidArgument>(name + "no such shard"));
  EXPECT_THAT(ask(1), ThrowsMessage<ClusterError>(name + "no such cluster"));
  EXPECT_THROW(ask(2)(), OutOfMemory);
  EXPECT_THAT(ask(3), ThrowsMessage<std::runtime_error>(name + "no luck"));
  EXPECT_THAT(
      ask(4),
      Throws<std::system_error>(AllOf(
          Property(&std::system_error::code, Eq(std::errc::no_space_on_device)),
          Property(&std::system_error::what, StrEq(name + "cannot write 'a': " + std::strerror(ENOSPC))))));
  EXPECT_THAT(ask(5), ThrowsMessage<PeerLost>(name + "worker 2 was lost"));
  EXPECT_FALSE(client.is_lost()) << "the server answers";
  EXPECT_THAT(ask(6), ThrowsMessage<InvalidArgument>(HasSubstr("expected dense tensors")));
  EXPECT_EQ(server.counts().failed_requests, 7U);
}

TEST(RpcServer, RefusesClientsOfAnotherToken) {
  std::atomic<int> num_handled{0};
  RpcServer server({.token = "secret"}, [&](RpcMessage) {
    ++num_handled;
    return RpcMessage{};
  });
  EXPECT_THAT(
      [&] { RpcClient(options_for(server, "guess")); },
      ThrowsMessage<ClusterError>(AllOf(HasSubstr("server 7 (127.0.0.1:"), HasSubstr("job's token"))));
  EXPECT_TRUE(comes_true([&] { return server.counts().wrong_tokens == 1; }));
  EXPECT_EQ(num_handled, 0);
}

TEST(RpcServer, OutlivesWhateverConnectsToIt) {
  RpcServer server({.token = "secret", .max_message_bytes = 1 << 20}, doubled);
  RpcClient client(options_for(server));
  const auto speak = [&](const std::vector<uint8_t>& bytes) {
    auto socket = StreamSocket::connect("127.0.0.1", server.port(), soon());
    socket.send({bytes}, soon());
    std::vector<uint8_t> last(4096);
    // The connection is dropped, whether the server had bytes left to read or not.
    code_of([&] { socket.receive({last}, soon()); });
  };
  const std::string request = "GET / HTTP/1.1\r\nHost: example\r\n\r\n" + std::string(100, 'x');
  speak({request.begin(), request.end()});
  speak(std::vector<uint8_t>(200, 0xff));
  { auto silent = StreamSocket::connect("127.0.0.1", server.port(), soon()); }
  EXPECT_TRUE(comes_true([&] { return server.counts().foreign_messages == 3; }));

  // One client knows the token and then announces a tebibyte; another sends a frame that is no request.
  for (const auto& frame :
       {RpcFrame{.tensor_bytes = uint64_t{1} << 40}, RpcFrame{.kind = RpcKind::kReply, .head_bytes = 4}}) {
    SecureSocket socket(StreamSocket::connect("127.0.0.1", server.port(), soon()));
    socket.meet(JobToken::from_text("secret"), {.purpose = kRpcPurpose}, soon());
    std::vector<uint8_t> limit(8);
    EXPECT_TRUE(socket.receive({limit}, soon()));
    const auto bytes = encode_frame(frame);
    const std::vector<uint8_t> no_tensors(4);
    socket.send({bytes, no_tensors}, soon());
    std::vector<uint8_t> one(1);
    code_of([&] { EXPECT_FALSE(socket.receive({one}, soon())); });
  }
  EXPECT_TRUE(comes_true([&] { return server.counts().foreign_messages == 5; }));
  EXPECT_EQ(client.call({.fields = {5}}).fields, (std::vector<uint8_t>{5}));
}

TEST(RpcServer, DropsThoseThatDoNotIntroduceThemselves) {
  RpcServer server({.token = "secret", .pending = {.timeout = milliseconds(50)}}, doubled);
  auto silent = StreamSocket::connect("127.0.0.1", server.port(), soon());
  std::vector<uint8_t> one(1);
  EXPECT_FALSE(silent.receive({one}, soon()));
  EXPECT_TRUE(comes_true([&] { return server.counts().foreign_messages == 1; }));
}

TEST(RpcServer, HoldsNoMoreConnectionsThanItMay) {
  RpcServer server({.token = "secret", .max_connections = 2}, doubled);
  RpcClient one(options_for(server));
  auto two = std::make_unique<RpcClient>(options_for(server));
  auto options = options_for(server);
  options.connect_timeout = milliseconds(100);
  EXPECT_THAT([&] { RpcClient{options}; }, ThrowsMessage<PeerLost>(HasSubstr("to answer within 0.1 s")));
  EXPECT_GT(server.counts().excess_connections, 0U);
  two.reset();
  RpcClient three(options_for(server));  // gets in once the server sees that the other one ended
  EXPECT_EQ(three.call({.fields = {1}}).fields.size(), 1U);
}

// An attacker who has taken the port of ps 1 hands connections on to ps 0.
TEST(RpcServer, RefusesClientsThatWantToReachAnotherTask) {
  RpcServer server({.token = "secret", .task = "ps 0"}, doubled);
  auto options = options_for(server);
  options.task = "worker 1";
  options.server_task = "ps 1";
  EXPECT_THAT([&] { RpcClient{options}; },
              ThrowsMessage<ClusterError>(HasSubstr("expected ps 1 of this start of the job")));
  options.server_task = "ps 0";
  EXPECT_EQ(RpcClient(options).call({.fields = {1}}).fields.size(), 1U);
}

TEST(RpcServer, CountsClientsOnlyOnceTheyHaveProvedTheToken) {
  RpcServer server({.token = "secret"}, doubled);
  const auto stranger = StreamSocket::connect("127.0.0.1", server.port(), soon());
  {
    RpcClient client(options_for(server));
    client.call({});
    EXPECT_EQ(server.num_connections(), 1);
  }
  EXPECT_TRUE(comes_true([&] { return server.num_connections() == 0; }));
}

TEST(RpcServer, ServesItsClientsWhileStrangersFillTheirPlaces) {
  constexpr int kStrangers = 8;
  RpcServer server(
      {.token = "secret", .pending = {.max_connections = kStrangers, .silent_after = milliseconds(5)}},
      doubled);
  RpcClient early(options_for(server));
  const auto strangers = connections_to(server, 5 * kStrangers);
  RpcClient late(options_for(server));
  EXPECT_EQ(early.call({.fields = {1}}).fields.size(), 1U);
  EXPECT_EQ(late.call({.fields = {1}}).fields.size(), 1U);
  EXPECT_GE(server.counts().foreign_messages, 4U * kStrangers);
}

// The other ends send the first bytes of a TLS record, and nothing more.
TEST(RpcServer, DoesNotLetAClientWaitLongForStrangersThatSendHalfAHello) {
  constexpr int kStrangers = 8;
  RpcServer server(
      {.token = "secret", .pending = {.max_connections = kStrangers, .silent_after = milliseconds(5)}},
      doubled);
  auto strangers = connections_to(server, 20 * kStrangers);
  const std::vector<uint8_t> half{0x16, 3, 1, 1, 0, 1};
  for (auto& stranger : strangers) code_of([&] { stranger.send({half}, soon()); });
  const auto begin = StreamSocket::Clock::now();
  RpcClient late(options_for(server));
  EXPECT_EQ(late.call({.fields = {1}}).fields.size(), 1U);
  // Twenty times 250 ms would be too long for a worker's heartbeats.
  EXPECT_LT(StreamSocket::Clock::now() - begin, std::chrono::seconds(2));
}

// A client on another continent, whose handshake takes longer than strangers take to come.
TEST(RpcServer, LetsAClientFinishItsHandshakeWhileStrangersCome) {
  constexpr int kStrangers = 8;
  RpcServer server(
      {.token = "secret", .pending = {.max_connections = kStrangers, .silent_after = milliseconds(5)}},
      doubled);
  const auto is_admitted = [&] {
    const auto client = StreamSocket::connect("127.0.0.1", server.port(), soon());
    TlsSession session(client.descriptor(), JobToken::from_text("secret"),
                       ChannelIdentity{.purpose = kRpcPurpose});
    session.shake_hands();  // sends its first message
    const auto strangers = connections_to(server, 2 * kStrangers);
    std::this_thread::sleep_for(milliseconds(50));
    std::optional<size_t> num_received = 0;
    const auto error = code_of([&] {
      shake_hands(session, soon());
      std::vector<uint8_t> limit(8);
      while (num_received == 0U) {
        client.wait_for(POLLIN, soon());
        num_received = session.receive(limit);
      }
    });
    return !error && num_received.has_value();
  };
  // This test's own thread may be too slow at times.
  bool is_any_admitted = false;
  for (int i = 0; i < 5 && !is_any_admitted; ++i) is_any_admitted = is_admitted();
  EXPECT_TRUE(is_any_admitted);
}

TEST(RpcServer, OpensNoDescriptorForAStrangerThatWaitsForAPlace) {
  RpcServer server({.token = "secret", .pending = {.max_connections = 1, .timeout = milliseconds(500)}},
                   doubled);
  const auto strangers = connections_to(server, 2);
  const auto num_descriptors_before = num_descriptors();
  const auto waiting = connections_to(server, 20);
  // Only this end of each of them is open.
  EXPECT_LE(num_descriptors(), num_descriptors_before + 20 + 1);
}

TEST(RpcServer, ForgetsConnectionsThatHaveEndedWithoutANewOne) {
  RpcServer server({.token = "secret"}, doubled);
  const auto before = num_descriptors();
  { RpcClient client(options_for(server)); }
  EXPECT_TRUE(comes_true([&] { return num_descriptors() == before; }));
}

TEST(RpcServer, TellsItsClientsWhatIsTooMuch) {
  RpcServer server({.token = "secret", .max_message_bytes = 1000}, doubled);
  RpcClient client(options_for(server));
  EXPECT_THAT([&] { client.call({.tensors = {torch::zeros({1000})}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected a message of 1000 bytes or less")));
  // The refused message did no harm.
  EXPECT_TRUE(client.call({.tensors = {torch::ones({100})}}).tensors.at(0).equal(torch::full({100}, 2.F)));
}

TEST(RpcServer, CloseWaitsForHandlersWhoseRepliesStillGoOut) {
  std::promise<void> begun;
  std::atomic<bool> has_ended{false};
  std::atomic<bool> is_closing{false};
  RpcServer server({.token = "secret"}, [&](RpcMessage) {
    begun.set_value();
    while (!is_closing) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(50));
    has_ended = true;
    return RpcMessage{.tensors = {torch::ones({4 << 20})}};  // larger than the system's buffers
  });
  RpcClient client(options_for(server));
  client.send({});
  begun.get_future().get();
  is_closing = true;
  auto reply = std::async(std::launch::async, [&] { return client.receive(); });
  server.close();
  EXPECT_TRUE(has_ended);
  EXPECT_TRUE(reply.get().tensors.at(0).equal(torch::ones({4 << 20})));
  EXPECT_THAT([&] { client.call({}); }, ThrowsMessage<PeerLost>(HasSubstr("server 7 (127.0.0.1:")));
  server.close();  // does nothing more
}

TEST(RpcServer, DoesNotListenWithoutAToken) {
  EXPECT_THROW(RpcServer({}, doubled), InvalidArgument);
}

TEST(RpcServer, NamesAPortThatIsInUse) {
  const RpcServer server({.token = "secret"}, doubled);
  EXPECT_THAT([&] { RpcServer({.port = server.port(), .token = "secret"}, doubled); },
              ThrowsMessage<ClusterError>(HasSubstr("127.0.0.1:" + std::to_string(server.port()))));
}

TEST(RpcServer, ListensByASocketThatItWasStartedWith) {
  TcpListener bound("127.0.0.1", 0);
  const int port = bound.port();
  const RpcServer server({.port = port, .token = "secret", .listening_socket = bound.release()},
                         [](RpcMessage request) { return request; });
  EXPECT_EQ(server.port(), port);
  RpcClient client({.name = "server 0", .host = "127.0.0.1", .port = port, .token = "secret"});
  EXPECT_EQ(client.call({.fields = {1, 2}}).fields.size(), 2U);
}

}  // namespace
}  // namespace lockstep
