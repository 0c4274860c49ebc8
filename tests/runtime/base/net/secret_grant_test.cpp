#include "lockstep/runtime/base/net/secret_grant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/secret_granter.h"
#include "lockstep/runtime/base/net/secret_message.h"
#include "lockstep/runtime/base/net/secret_request.h"
#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/store/store_client.h"
#include "lockstep/runtime/store/store_server.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;
using Reason = HandshakeError::Reason;

/// A user who proves statements with a key that only this user's processes have.
class KeyOfUser : public UserAuthentication {
 public:
  explicit KeyOfUser(const std::string& user) : key_(JobToken::from_text(user)) {}

  std::string name() const override { return "a test"; }
  Bytes prove(std::span<const uint8_t> statement) const override {
    const auto tag = key_.tag(statement);
    return {tag.begin(), tag.end()};
  }
  void check(std::span<const uint8_t> statement, std::span<const uint8_t> proof) const override {
    if (!key_.verify(statement, proof)) throw InvalidArgument("expected this user, but got another");
  }

 private:
  const JobToken key_;
};

const std::shared_ptr<const UserAuthentication>& this_user() {
  static const std::shared_ptr<const UserAuthentication> user = std::make_shared<KeyOfUser>("this user");
  return user;
}

const JobToken& given_secret() {
  static const JobToken token = JobToken::random();
  return token;
}

std::shared_ptr<const SecretGrant> given_grant() {
  return std::make_shared<const SecretGrant>(
      SecretGrant{.authentication = this_user(), .job = "4.2", .generation = 7, .secret = given_secret()});
}

ChannelIdentity for_secret(uint64_t generation = 7) {
  return {
      .purpose = kSecretPurpose, .client = "worker 1", .server = kSecretPurpose, .generation = generation};
}

/// A first task's end of one connection, whose own clients would all be admitted.
std::future<std::optional<Reason>> served(StreamSocket socket,
                                          std::shared_ptr<const SecretGrant> given = given_grant()) {
  return std::async(std::launch::async,
                    [socket = std::move(socket), given]() mutable -> std::optional<Reason> {
                      const StreamSocket end(std::move(socket));  // closed before the caller looks
                      try {
                        TlsSession session(
                            end.descriptor(), given_secret(), [](const ChannelIdentity&) { return true; },
                            given ? std::make_shared<SecretGranter>(given) : nullptr);
                        shake_hands(session, soon());
                      } catch (const HandshakeError& error) {
                        return error.reason();
                      } catch (const std::exception&) {
                        return Reason::kForeign;
                      }
                      return std::nullopt;
                    });
}

/// A client that has the key that everybody knows, and says what a test wants.
class Stranger {
 public:
  explicit Stranger(StreamSocket socket, uint64_t generation = 7) : socket_(std::move(socket)) {
    socket_.meet(secret_channel_token(), for_secret(generation), soon());
  }

  const TlsSession& session() const { return socket_.session(); }
  Bytes proof(const UserAuthentication& user, SecretEnd end = SecretEnd::kClient) const {
    return user.prove(secret_statement(session(), end));
  }
  void send(const Bytes& bytes) { socket_.send({bytes}, soon()); }
  /// Returns the reply to a request; nullopt if the connection is closed.
  std::optional<SecretReply> ask(const SecretRequest& request) {
    send(encode(request));
    return receive();
  }
  std::optional<SecretReply> receive() {
    try {
      std::array<uint8_t, kSecretSizeBytes> size{};
      if (!socket_.receive({size}, soon())) return std::nullopt;
      Bytes message(decode_secret_size(size));
      socket_.receive({message}, soon());
      return decode_secret_reply(message);
    } catch (const std::system_error&) {
      return std::nullopt;
    }
  }

 private:
  SecureSocket socket_;
};

TEST(SecretGrantTest, GivesTheSecretToAProcessOfTheUser) {
  auto [client, server] = connected_sockets();
  auto end = served(std::move(server));
  Stranger process(std::move(client));
  const auto reply = process.ask({.job = "4.2", .source = "a test", .proof = process.proof(*this_user())});
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->secret, given_secret().hex());
  this_user()->check(secret_statement(process.session(), SecretEnd::kServer), reply->proof);
  EXPECT_EQ(end.get(), Reason::kGranted);
}

TEST(SecretGrantTest, TellsOthersNothing) {
  const KeyOfUser other("other user");
  const struct {
    const UserAuthentication& user;
    SecretEnd end;
    std::string job;
    std::string source;
  } attempts[] = {{other, SecretEnd::kClient, "4.2", "a test"},
                  {*this_user(), SecretEnd::kServer, "4.2", "a test"},
                  {*this_user(), SecretEnd::kClient, "4.3", "a test"},
                  {*this_user(), SecretEnd::kClient, "4.2", "another test"}};
  for (const auto& attempt : attempts) {
    auto [client, server] = connected_sockets();
    auto end = served(std::move(server));
    Stranger process(std::move(client));
    EXPECT_EQ(process.ask({.job = attempt.job,
                           .source = attempt.source,
                           .proof = process.proof(attempt.user, attempt.end)}),
              SecretReply{})
        << attempt.job << attempt.source;
    EXPECT_EQ(end.get(), Reason::kToken);
  }
}

TEST(SecretGrantTest, RefusesAProofThatWasMadeForAnotherConnection) {
  auto [client, server] = connected_sockets();
  auto end = served(std::move(server));
  Stranger process(std::move(client));
  const SecretRequest request{.job = "4.2", .source = "a test", .proof = process.proof(*this_user())};
  EXPECT_EQ(process.ask(request)->secret, given_secret().hex());
  EXPECT_EQ(end.get(), Reason::kGranted);
  // An attacker who got hold of the request, as a server that another process takes for the first task does.
  auto [attacker_socket, second] = connected_sockets();
  end = served(std::move(second));
  Stranger attacker(std::move(attacker_socket));
  EXPECT_EQ(attacker.ask(request), SecretReply{});
  EXPECT_EQ(end.get(), Reason::kToken);
}

TEST(SecretGrantTest, RefusesWhatIsNoRequest) {
  const Bytes too_large{0, 0, 1, 0};
  const Bytes empty{0, 0, 0, 0};
  const Bytes no_request{4, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF};
  for (const auto& bytes : {too_large, empty, no_request}) {
    auto [client, server] = connected_sockets();
    auto end = served(std::move(server));
    Stranger process(std::move(client));
    process.send(bytes);
    EXPECT_EQ(process.receive(), std::nullopt);
    EXPECT_EQ(end.get(), Reason::kForeign);
  }
}

TEST(SecretGrantTest, IsNotGivenByOtherServersAndOtherStarts) {
  auto [client, server] = connected_sockets();
  auto end = served(std::move(server), nullptr);
  EXPECT_THROW(Stranger(std::move(client)), HandshakeError);
  EXPECT_EQ(end.get(), Reason::kIdentity);
  auto [late, next] = connected_sockets();
  end = served(std::move(next));
  SecureSocket socket(std::move(late));
  EXPECT_THROW(socket.meet(secret_channel_token(), for_secret(6), soon()), HandshakeError);
  EXPECT_EQ(end.get(), Reason::kIdentity);
}

/// A job's store that gives the secret.
class GivingStoreTest : public ::testing::Test {
 protected:
  SecretRequestOptions request() const {
    return {.host = "127.0.0.1",
            .port = server_.port(),
            .task = "worker 1",
            .first_task = "worker 0",
            .authentication = this_user(),
            .job = "4.2",
            .generation = 7};
  }
  StoreClientOptions client(const JobToken& token) const {
    return {.host = "127.0.0.1",
            .port = server_.port(),
            .token = token,
            .name = "worker 1",
            .generation = 7,
            .connect_timeout = std::chrono::seconds(30)};
  }
  StreamSocket connect() const { return StreamSocket::connect("127.0.0.1", server_.port(), soon()); }

  StoreServer server_{TcpListener("127.0.0.1", 0),
                      {.token = given_secret(),
                       .generation = 7,
                       .grant = given_grant(),
                       .pending = {.max_connections = 4, .timeout = milliseconds(2'000)}}};
};

TEST_F(GivingStoreTest, LetsProcessesOfTheUserIn) {
  const auto token = request_secret(request());
  EXPECT_EQ(token.hex(), given_secret().hex());
  StoreClient process(client(token));
  process.set({"key"}, {"value"}, {});
  EXPECT_EQ(server_.num_clients(), 1);
  EXPECT_EQ(server_.num_rejected(), 0U);
}

TEST_F(GivingStoreTest, IsClosedToTheKeyThatEverybodyKnows) {
  EXPECT_THROW(StoreClient{client(secret_channel_token())}, HandshakeError);
  Stranger stranger(connect());
  stranger.send(encode(StoreRequest{.id = 1, .op = StoreOp::kCount}));
  EXPECT_EQ(stranger.receive(), std::nullopt);
  EXPECT_EQ(server_.num_clients(), 0);
}

TEST_F(GivingStoreTest, NamesTheFirstTaskToAProcessThatItRefuses) {
  auto other = request();
  other.authentication = std::make_shared<KeyOfUser>("other user");
  EXPECT_THAT(message_of<ClusterError>([&] { request_secret(other); }),
              AllOf(HasSubstr("worker 1 did not get the job's secret from worker 0 (127.0.0.1:"),
                    HasSubstr("it refuses this process"), HasSubstr("same user, by a test")));
  // It counts after it has answered.
  while (server_.num_wrong_tokens() == 0) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(server_.num_wrong_tokens(), 1U);
}

TEST_F(GivingStoreTest, SaysThatAnotherStartGetsNoSecret) {
  auto late = request();
  late.generation = 8;
  late.timeout = milliseconds(300);
  EXPECT_THAT(message_of<ClusterError>([&] { request_secret(late); }),
              AllOf(HasSubstr("not within 0.3 s"), HasSubstr("the same source of the secret"),
                    HasSubstr("a test here")));
}

TEST_F(GivingStoreTest, ServesProcessesWhileStrangersHoldAllPlaces) {
  std::vector<std::unique_ptr<Stranger>> strangers;
  strangers.reserve(4);
  for (int i = 0; i < 4; ++i) strangers.push_back(std::make_unique<Stranger>(connect()));
  strangers[1]->send({255});
  strangers[2]->send(Bytes(4096, 1));
  EXPECT_EQ(request_secret(request()).hex(), given_secret().hex());
}

TEST_F(GivingStoreTest, ForgetsStrangersWhoSayNothing) {
  Stranger stranger(connect());
  const auto begin = StreamSocket::Clock::now();
  EXPECT_EQ(stranger.receive(), std::nullopt);
  EXPECT_LT(StreamSocket::Clock::now() - begin, milliseconds(20'000));
  EXPECT_EQ(server_.num_rejected(), 1U);
}

/// A user whose proofs are checked only once a test allows it, as if munged did not answer.
class SlowCheck : public KeyOfUser {
 public:
  SlowCheck() : KeyOfUser("this user") {}

  void check(std::span<const uint8_t> statement, std::span<const uint8_t> proof) const override {
    ++num_begun_;
    allowed_.wait();
    KeyOfUser::check(statement, proof);
  }
  void wait_for_check() const {
    while (num_begun_ == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  int num_begun() const { return num_begun_; }
  void allow() { permission_.set_value(); }

 private:
  mutable std::atomic<int> num_begun_{0};
  std::promise<void> permission_;
  const std::shared_future<void> allowed_ = permission_.get_future().share();
};

class SlowlyGivingStoreTest : public ::testing::Test {
 protected:
  explicit SlowlyGivingStoreTest(milliseconds timeout = std::chrono::seconds(60))
      : server_(TcpListener("127.0.0.1", 0), {.token = given_secret(),
                                              .grant = std::make_shared<const SecretGrant>(SecretGrant{
                                                  .authentication = slow_, .secret = given_secret()}),
                                              .pending = {.timeout = timeout}}) {}

  /// Asks for the secret as a process of the user does.
  std::future<JobToken> request() const {
    return std::async(std::launch::async, [port = server_.port()] {
      return request_secret({.host = "127.0.0.1",
                             .port = port,
                             .task = "worker 1",
                             .first_task = "worker 0",
                             .authentication = this_user()});
    });
  }
  StoreClientOptions client() const {
    return {.host = "127.0.0.1", .port = server_.port(), .token = given_secret(), .name = "worker 2"};
  }

  const std::shared_ptr<SlowCheck> slow_ = std::make_shared<SlowCheck>();
  StoreServer server_;
};

TEST_F(SlowlyGivingStoreTest, ServesAndAdmitsClientsDuringACheck) {
  StoreClient early(client());
  auto token = request();
  slow_->wait_for_check();
  EXPECT_EQ(early.add("n", 1), 1);
  EXPECT_EQ(StoreClient(client()).add("n", 1), 2);
  EXPECT_EQ(token.wait_for(milliseconds(0)), std::future_status::timeout);
  slow_->allow();
  EXPECT_EQ(token.get().hex(), given_secret().hex());
}

class BrieflyWaitingStoreTest : public SlowlyGivingStoreTest {
 protected:
  BrieflyWaitingStoreTest() : SlowlyGivingStoreTest(milliseconds(500)) {}
};

// Otherwise, those that have gone would keep others waiting once the checks go on.
TEST_F(BrieflyWaitingStoreTest, DoesNotCheckRequestsOfThoseThatHaveGone) {
  constexpr int kStrangers = 8;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(std::make_unique<Stranger>(StreamSocket::connect("127.0.0.1", server_.port(), soon()),
                                                   /*generation=*/0));
    strangers.back()->send(
        encode(SecretRequest{.source = "a test", .proof = strangers.back()->proof(*this_user())}));
  }
  slow_->wait_for_check();
  for (const auto& stranger : strangers) EXPECT_EQ(stranger->receive(), std::nullopt);
  EXPECT_EQ(server_.num_rejected(), static_cast<uint64_t>(kStrangers));
  slow_->allow();
  EXPECT_EQ(request().get().hex(), given_secret().hex());
  EXPECT_EQ(slow_->num_begun(), 2);
}

/// Somebody else who listens where the first task should, and knows the user's requests, but not the key.
TEST(SecretRequestTest, TakesNoSecretFromAnotherUser) {
  TcpListener listener("127.0.0.1", 0);
  const int port = listener.port();
  /// Gives its secret to everybody.
  class Everybody : public KeyOfUser {
   public:
    Everybody() : KeyOfUser("other user") {}
    void check(std::span<const uint8_t> /*statement*/, std::span<const uint8_t> /*proof*/) const override {}
  };
  const StoreServer server(
      std::move(listener),
      {.token = given_secret(),
       .grant = std::make_shared<const SecretGrant>(SecretGrant{
           .authentication = std::make_shared<Everybody>(), .job = "4.2", .secret = JobToken::random()})});
  EXPECT_THAT(message_of<ClusterError>([&] {
                request_secret({.host = "127.0.0.1",
                                .port = port,
                                .task = "worker 1",
                                .first_task = "worker 0",
                                .authentication = this_user(),
                                .job = "4.2"});
              }),
              HasSubstr("expected this user, but got another"));
}

TEST(SecretRequestTest, WaitsForAFirstTaskThatComesLate) {
  const int port = TcpListener("127.0.0.1", 0).port();
  auto token = std::async(std::launch::async, [&] {
    return request_secret({.host = "127.0.0.1",
                           .port = port,
                           .task = "worker 1",
                           .first_task = "worker 0",
                           .authentication = this_user(),
                           .job = "4.2",
                           .generation = 7})
        .hex();
  });
  EXPECT_EQ(token.wait_for(milliseconds(200)), std::future_status::timeout);
  const StoreServer server(TcpListener("127.0.0.1", port),
                           {.token = given_secret(), .generation = 7, .grant = given_grant()});
  EXPECT_EQ(token.get(), given_secret().hex());
}

TEST(SecretRequestTest, GivesUpOnAPortAtWhichNobodyListens) {
  const int port = TcpListener("127.0.0.1", 0).port();
  EXPECT_THAT(message_of<ClusterError>([&] {
                request_secret({.host = "127.0.0.1",
                                .port = port,
                                .task = "worker 1",
                                .first_task = "chief 0",
                                .authentication = this_user(),
                                .timeout = milliseconds(200)});
              }),
              AllOf(HasSubstr("from chief 0"), HasSubstr("not within 0.2 s: Connection refused")));
}

}  // namespace
}  // namespace lockstep
