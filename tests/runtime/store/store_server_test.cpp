#include "lockstep/runtime/store/store_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/store/store_client.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using Clock = StreamSocket::Clock;

constexpr char kToken[] = "the secret of this job";
constexpr uint64_t kGeneration = 3;

StoreServerOptions server_options() {
  return {.token = JobToken::from_text(kToken), .generation = kGeneration};
}

StoreClientOptions client_options(const StoreServer& server, const std::string& token = kToken) {
  return {.host = "127.0.0.1",
          .port = server.port(),
          .token = JobToken::from_text(token),
          .name = "worker 1",
          .generation = kGeneration,
          .connect_timeout = seconds(60)};
}

template <typename Condition>
bool becomes_true(const Condition& condition) {
  const auto deadline = soon();
  while (!condition() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(2));
  return condition();
}

class StoreServerTest : public testing::Test {
 protected:
  explicit StoreServerTest(const StoreServerOptions& options = server_options())
      : server_(TcpListener("127.0.0.1", 0), options) {}

  StreamSocket stranger() const { return StreamSocket::connect("127.0.0.1", server_.port(), soon()); }

  StoreServer server_;
};

TEST_F(StoreServerTest, AnswersCalls) {
  StoreClient client(client_options(server_));
  client.set({"a", "b"}, {"1", std::string("\0x", 2)});
  EXPECT_THAT(*client.get({"b", "a"}, {}, {}), ElementsAre(std::string("\0x", 2), "1"));
  EXPECT_TRUE(client.check({"a"}));
  EXPECT_FALSE(client.check({"a", "c"}));
  EXPECT_EQ(client.add("n", 4), 4);
  client.append("a", "2");
  EXPECT_EQ(client.compare_set("a", "12", "3"), "3");
  EXPECT_EQ(client.num_keys(), 3);
  EXPECT_TRUE(client.erase("a"));
  EXPECT_FALSE(client.erase("a"));
  EXPECT_THROW(client.add("b", 1), ClusterError);
}

TEST_F(StoreServerTest, LetsCallsPassOthersThatWait) {
  StoreClient client(client_options(server_));
  std::thread waiting(
      [&] { EXPECT_THAT(*client.get({"late"}, {}, {.timeout = seconds(60)}), ElementsAre("x")); });
  for (int i = 1; i <= 100; ++i) EXPECT_EQ(client.add("n", 1), i);
  client.set("late", "x");
  waiting.join();
}

TEST_F(StoreServerTest, CarriesLargeValuesForManyThreads) {
  StoreClient client(client_options(server_));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string key = "key " + std::to_string(i);
      for (int size : {0, 1, 1000, 300'000, 4'000'000}) {
        const std::string value(static_cast<size_t>(size), static_cast<char>('a' + i));
        client.set(key, value);
        EXPECT_EQ(client.get({key}, {}, {})->front(), value);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// As many workers as two cores can do in a second or so, at once, as at the start of a job.
TEST_F(StoreServerTest, LetsAllClientsMeet) {
  constexpr int kClients = 200;
  std::vector<std::string> keys;
  for (int i = 0; i < kClients; ++i) keys.push_back("worker/" + std::to_string(i));
  std::vector<std::thread> threads;
  std::atomic<int> num_met = 0;
  for (const auto& key : keys) {
    threads.emplace_back([&] {
      StoreClient client(client_options(server_));
      client.set(key, "here");
      num_met += client.get(keys, {}, {.timeout = seconds(60)})->size() == keys.size();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_met, kClients);
  EXPECT_TRUE(becomes_true([&] { return server_.num_clients() == 0; }));
}

TEST_F(StoreServerTest, EndsCallsAtTheTimeoutAndForgetsThem) {
  StoreClient client(client_options(server_));
  EXPECT_EQ(code_of([&] { client.get({"absent"}, {}, {.timeout = milliseconds(50)}); }),
            std::errc::timed_out);
  client.set("absent", "now");  // whose answer belongs to no call
  EXPECT_THAT(*client.get({"absent"}, {}, {}), ElementsAre("now"));
}

TEST_F(StoreServerTest, EndsAWaitByAnotherKey) {
  StoreClient client(client_options(server_));
  StoreClient other(client_options(server_));
  std::thread fails([&] { other.set("failures", "worker 1"); });
  EXPECT_EQ(client.get({"absent"}, {"failures"}, {.timeout = seconds(60)}), std::nullopt);
  fails.join();
}

TEST_F(StoreServerTest, InterruptsOnlyCallsThatAllowIt) {
  StoreClient client(client_options(server_));
  std::thread interrupts([&] {
    std::this_thread::sleep_for(milliseconds(20));
    client.interrupt();
  });
  const StoreCallOptions interruptible{.timeout = seconds(60), .is_interruptible = true};
  EXPECT_EQ(code_of([&] { client.get({"absent"}, {}, interruptible); }), std::errc::operation_canceled);
  interrupts.join();
  client.set("a", "1");
  EXPECT_EQ(client.get({"a"}, {}, {})->front(), "1");
}

TEST_F(StoreServerTest, ReadsLaterWhatWasAskedBefore) {
  StoreClient client(client_options(server_));
  const auto number = client.begin_get({"report"});
  EXPECT_EQ(client.poll_get(number), std::nullopt);
  client.set("report", "lost");
  std::optional<std::vector<std::string>> values;
  ASSERT_TRUE(becomes_true([&] {
    if (!values) values = client.poll_get(number);
    return values.has_value();
  }));
  EXPECT_THAT(*values, ElementsAre("lost"));
  client.end_get(number);
}

TEST_F(StoreServerTest, EndsCallsOfAClientThatIsClosed) {
  StoreClient client(client_options(server_));
  std::thread waits([&] {
    EXPECT_EQ(code_of([&] { client.get({"absent"}, {}, {.timeout = seconds(60)}); }),
              std::errc::not_connected);
  });
  EXPECT_TRUE(becomes_true([&] { return server_.num_clients() == 1; }));
  client.close();
  waits.join();
  EXPECT_EQ(code_of([&] { client.set("a", "1"); }), std::errc::not_connected);
}

TEST(StoreClient, ReportsAServerThatHasEnded) {
  std::optional<StoreServer> server(std::in_place, TcpListener("127.0.0.1", 0), server_options());
  StoreClient client(client_options(*server));
  std::thread ends([&] { server.reset(); });
  EXPECT_EQ(code_of([&] { client.get({"absent"}, {}, {.timeout = seconds(60)}); }),
            std::errc::connection_reset);
  ends.join();
  EXPECT_TRUE(code_of([&] { client.set("a", "1"); }));
}

TEST(StoreClient, WaitsForAServerOfItsOwnStart) {
  TcpListener first("127.0.0.1", 0);
  const int port = first.port();
  auto options = server_options();
  options.generation = kGeneration - 1;
  std::optional<StoreServer> server(std::in_place, std::move(first), options);
  auto asked = client_options(*server);
  std::thread restarts([&] {
    EXPECT_TRUE(becomes_true([&] { return server->num_rejected() > 0; }));
    server.reset();
    server.emplace(TcpListener("127.0.0.1", port), server_options());
  });
  StoreClient client(asked);
  client.set("a", "1");
  restarts.join();
  asked.generation = kGeneration + 1;
  // The server's answer is the error once there was time for one.
  std::optional<HandshakeError::Reason> reason;
  for (asked.connect_timeout = milliseconds(100); !reason && asked.connect_timeout < seconds(30);
       asked.connect_timeout *= 2) {
    try {
      StoreClient{asked};
      FAIL() << "connected";
    } catch (const HandshakeError& error) {
      reason = error.reason();
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code(), std::errc::timed_out);
    }
  }
  EXPECT_EQ(reason, HandshakeError::Reason::kIdentity);
}

TEST_F(StoreServerTest, RefusesAnotherTokenAtOnce) {
  const auto begin = Clock::now();
  try {
    StoreClient{client_options(server_, "another secret")};
    FAIL() << "connected";
  } catch (const HandshakeError& error) {
    EXPECT_EQ(error.reason(), HandshakeError::Reason::kToken);
  }
  EXPECT_LT(Clock::now() - begin, seconds(30));
  EXPECT_TRUE(becomes_true([&] { return server_.num_rejected() == 1; }));
  EXPECT_EQ(server_.num_clients(), 0);
}

// A connection for another purpose has another key, so its server cannot be made to answer here.
TEST_F(StoreServerTest, RefusesConnectionsForAnotherPurpose) {
  SecureSocket socket(stranger());
  EXPECT_THROW(
      socket.meet(JobToken::from_text(kToken),
                  {.purpose = "rpc", .client = "worker 1", .server = "store", .generation = kGeneration},
                  soon()),
      HandshakeError);
}

TEST_F(StoreServerTest, ReadsNothingOfThoseWhoDoNotKnowTheToken) {
  auto socket = stranger();
  const auto request = encode(StoreRequest{.op = StoreOp::kSet, .keys = {"failures"}, .values = {"forged"}});
  socket.send({request}, soon());
  uint8_t byte = 0;
  while (code_of([&] {
           while (socket.receive({{&byte, 1}}, soon())) continue;
         }) == std::error_code() &&
         server_.num_rejected() == 0)
    continue;
  EXPECT_EQ(server_.num_rejected(), 1U);
  EXPECT_FALSE(StoreClient(client_options(server_)).check({"failures"}));
}

TEST_F(StoreServerTest, DropsAClientThatDoesNotSendMessages) {
  SecureSocket socket(stranger());
  socket.meet(JobToken::from_text(kToken),
              {.purpose = "store", .client = "worker 1", .server = "store", .generation = kGeneration},
              soon());
  std::vector<uint8_t> welcome(encode(StoreReply{.id = kStoreWelcome}).size());
  ASSERT_TRUE(socket.receive({welcome}, soon()));
  const std::vector<uint8_t> huge{0xff, 0xff, 0xff, 0xff, 1, 2, 3};
  socket.send({huge}, soon());
  EXPECT_TRUE(becomes_true([&] { return server_.num_rejected() == 1 && server_.num_clients() == 0; }));
}

class StoreServerWithFewPlaces : public StoreServerTest {
 protected:
  static StoreServerOptions few_places() {
    auto options = server_options();
    options.pending = {.max_connections = 4, .timeout = seconds(2)};
    return options;
  }
  StoreServerWithFewPlaces() : StoreServerTest(few_places()) {}
};

TEST_F(StoreServerWithFewPlaces, LetsClientsInWhileStrangersFillThem) {
  std::vector<StreamSocket> strangers;
  for (int i = 0; i < 12; ++i) strangers.push_back(stranger());
  StoreClient client(client_options(server_));
  EXPECT_EQ(client.add("n", 1), 1);
  EXPECT_EQ(server_.num_clients(), 1);
  EXPECT_GE(server_.num_rejected(), 8U);
  EXPECT_TRUE(becomes_true([&] { return server_.num_rejected() == 12; }));  // all, after the handshake's time
}

// 40 answers of 8 MiB: the server stops reading until the client takes them.
TEST_F(StoreServerTest, AnswersRequestsWhoseAnswersExceedWhatItKeeps) {
  StoreClient client(client_options(server_));
  const std::string value(kMaxStoreMessageBytes / 2, 'x');
  client.set("big", value);
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 40; ++i) numbers.push_back(client.begin_get({"big"}));
  for (const uint64_t number : numbers) {
    std::optional<std::vector<std::string>> values;
    ASSERT_TRUE(becomes_true([&] {
      if (!values) values = client.poll_get(number);
      return values.has_value();
    }));
    EXPECT_EQ(values->front(), value);
  }
}

TEST_F(StoreServerTest, WaitsForItsClientsToLeave) {
  auto own = std::make_unique<StoreClient>(client_options(server_));
  auto other = std::make_unique<StoreClient>(client_options(server_));
  ASSERT_TRUE(becomes_true([&] { return server_.num_clients() == 2; }));
  const auto begin = Clock::now();
  server_.wait_for_departures(milliseconds(50));
  EXPECT_GE(Clock::now() - begin, milliseconds(50));
  std::thread leaves([&] { other.reset(); });
  server_.wait_for_departures(seconds(60));
  EXPECT_LT(Clock::now() - begin, seconds(50));
  leaves.join();
}

}  // namespace
}  // namespace lockstep
