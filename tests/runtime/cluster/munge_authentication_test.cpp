#include "lockstep/runtime/cluster/internal/munge_authentication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/secret_request.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/store/store_client.h"
#include "lockstep/runtime/store/store_server.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/process_runner.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

const Bytes kPayload{1, 0, 2};

Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Returns a credential that MUNGE's own program makes, perhaps run by another.
Bytes credential_by(const std::vector<std::string>& command) {
  const auto made = testing::run_process("/usr/bin/env", command);
  if (made.exit_code != 0) throw std::runtime_error(command.front() + ": " + made.error);
  return bytes_of(made.out.substr(0, made.out.find('\n')));
}

std::string program_of_munged() {
  for (const char* path : {"/usr/sbin/munged", "/usr/local/sbin/munged", "/usr/bin/munged"})
    if (std::filesystem::exists(path)) return path;
  return "";
}

/// The munged of a machine, with the key of the machine's cluster.
class Munged {
 public:
  explicit Munged(const std::string& key) {
    chmod(folder_.path().c_str(), 0755);  // for other users
    folder_.write("key", key);
    chmod(folder_.file("key").c_str(), 0600);
    std::vector<std::string> arguments{"--socket=" + socket()};
    for (const char* name : {"key", "pid", "seed", "log"})
      arguments.push_back(std::string("--") + name + "-file=" + folder_.file(name));
    const mode_t before = umask(0022);  // for its log
    const auto result = testing::run_process(program_of_munged(), arguments);
    umask(before);
    if (result.exit_code != 0) throw std::runtime_error("munged: " + result.error);
  }
  ~Munged() {
    const pid_t process = this->process();
    // It writes into its folder at the end.
    for (int i = 0; i < 500 && kill(process, SIGTERM) == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  Munged(const Munged&) = delete;
  Munged& operator=(const Munged&) = delete;

  std::string socket() const { return folder_.file("socket"); }
  /// Lets it answer nobody until resume() is called. Connections to its socket succeed meanwhile.
  void suspend() const { kill(process(), SIGSTOP); }
  void resume() const { kill(process(), SIGCONT); }

 private:
  pid_t process() const { return std::stoi(testing::read_text(folder_.file("pid"))); }

  const testing::TemporaryFolder folder_;
};

class MungeAuthenticationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!program_of_munged().empty()) munged_ = new Munged(kKey);
  }
  static void TearDownTestSuite() { delete munged_; }
  void SetUp() override {
    if (munged_ == nullptr) GTEST_SKIP() << "needs munged (Debian: munge)";
    user_.emplace(munged_->socket());
  }

  std::string refusal_of(const Bytes& proof, const Bytes& statement = kPayload) const {
    return message_of<InvalidArgument>([&] { user_->check(statement, proof); });
  }

  static constexpr const char* kKey = "a key of 32 bytes, for tests only";
  static Munged* munged_;
  std::optional<MungeAuthentication> user_;
};

Munged* MungeAuthenticationTest::munged_ = nullptr;

TEST_F(MungeAuthenticationTest, AcceptsAProofOfTheUser) {
  user_->check(kPayload, user_->prove(kPayload));
  user_->check({}, user_->prove({}));
}

TEST_F(MungeAuthenticationTest, AcceptsAProofOfAnotherMachineWithTheSameKey) {
  const Munged elsewhere(kKey);
  user_->check(kPayload, MungeAuthentication(elsewhere.socket()).prove(kPayload));
}

TEST_F(MungeAuthenticationTest, ReadsWhatTheMungeProgramWrites) {
  user_->check(bytes_of("a statement"),
               credential_by({"munge", "--socket=" + munged_->socket(), "--string=a statement"}));
}

TEST_F(MungeAuthenticationTest, LetsOnlyTheUserDecodeAProof) {
  const Bytes proof = user_->prove(kPayload);
  const testing::TemporaryFolder folder;
  const auto decoded = testing::run_process(
      "/usr/bin/env", {"unmunge", "--socket=" + munged_->socket(), "--input=" + folder.write("proof", proof),
                       "--keys=UID_RESTRICTION"});
  EXPECT_EQ(decoded.exit_code, 0) << decoded.error;
  EXPECT_THAT(decoded.out, HasSubstr("(" + std::to_string(geteuid()) + ")"));
}

TEST_F(MungeAuthenticationTest, RefusesAProofOfAnotherUser) {
  if (!testing::can_become_other_user()) GTEST_SKIP() << "only root can become another user";
  const testing::TemporaryFolder folder;
  chmod(folder.path().c_str(), 0777);
  ASSERT_TRUE(testing::run_as_other_user([&] {
    folder.write("proof", MungeAuthentication(munged_->socket()).prove(kPayload));
    return true;
  }));
  // The other user keeps this one from decoding it, too.
  EXPECT_THAT(refusal_of(bytes_of(testing::read_text(folder.file("proof")))),
              HasSubstr("Unauthorized credential"));
  const Bytes unrestricted = credential_by({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                            "munge", "--socket=" + munged_->socket(), "--no-input"});
  EXPECT_THAT(refusal_of(unrestricted, {}),
              HasSubstr("expected a credential of user 0, but got one of user 65534"));
}

TEST_F(MungeAuthenticationTest, RefusesAProofThatItHasSeen) {
  const Bytes proof = user_->prove(kPayload);
  user_->check(kPayload, proof);
  EXPECT_THAT(refusal_of(proof), HasSubstr("Replayed credential"));
}

TEST_F(MungeAuthenticationTest, RefusesAProofThatIsTooOld) {
  const Bytes proof = credential_by({"munge", "--socket=" + munged_->socket(), "--no-input", "--ttl=1"});
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_THAT(refusal_of(proof, {}), HasSubstr("Expired credential"));
}

TEST_F(MungeAuthenticationTest, RefusesAProofOfAnotherStatement) {
  EXPECT_THAT(refusal_of(user_->prove(Bytes{1, 0})), HasSubstr("but got one for another"));
  EXPECT_THAT(refusal_of(user_->prove({})), HasSubstr("but got one for another"));
}

TEST_F(MungeAuthenticationTest, RefusesAProofWithAnotherKey) {
  const Munged elsewhere("another key of 32 bytes, for tests");
  EXPECT_THAT(refusal_of(MungeAuthentication(elsewhere.socket()).prove(kPayload)),
              HasSubstr("Invalid credential"));
}

TEST_F(MungeAuthenticationTest, RefusesAChangedProof) {
  Bytes proof = user_->prove(kPayload);
  proof[proof.size() / 2] ^= 1;
  // The changed character may be none of base64.
  EXPECT_THAT(refusal_of(proof),
              AnyOf(HasSubstr("nvalid credential"), HasSubstr("base64-decode credential")));
  for (const Bytes& bytes : {Bytes{}, Bytes{0}, Bytes(20'000, 'M')})
    EXPECT_THROW(user_->check(kPayload, bytes), InvalidArgument);
}

/// Notes that a check has begun.
class NotedAuthentication : public UserAuthentication {
 public:
  explicit NotedAuthentication(const std::string& socket) : user_(socket) {}
  std::string name() const override { return user_.name(); }
  Bytes prove(std::span<const uint8_t> statement) const override { return user_.prove(statement); }
  void check(std::span<const uint8_t> statement, std::span<const uint8_t> proof) const override {
    has_begun_ = true;
    user_.check(statement, proof);
  }
  bool has_begun() const { return has_begun_; }

 private:
  const MungeAuthentication user_;
  mutable std::atomic<bool> has_begun_{false};
};

// libmunge waits for 2 s each time that it asks, and asks 5 times.
TEST_F(MungeAuthenticationTest, KeepsNoClientOfTheStoreWaitingWhileMungedDoesNotAnswer) {
  const Munged hanging(kKey);
  const auto first_task = std::make_shared<const NotedAuthentication>(hanging.socket());
  const JobToken secret = JobToken::random();
  const StoreServer server(TcpListener("127.0.0.1", 0),
                           {.token = secret,
                            .grant = std::make_shared<const SecretGrant>(
                                SecretGrant{.authentication = first_task, .secret = secret})});
  const StoreClientOptions options{
      .host = "127.0.0.1", .port = server.port(), .token = secret, .name = "worker 2"};
  StoreClient client(options);
  hanging.suspend();
  auto asked = std::async(std::launch::async, [&] {
    return request_secret({.host = "127.0.0.1",
                           .port = server.port(),
                           .task = "worker 1",
                           .first_task = "worker 0",
                           .authentication = std::make_shared<const MungeAuthentication>(munged_->socket())});
  });
  while (!first_task->has_begun()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(3);
  Clock::duration longest{};
  for (auto begin = Clock::now(); begin < end; begin = Clock::now()) {
    client.add("calls", 1);
    StoreClient(options).add("clients", 1);
    longest = std::max(longest, Clock::now() - begin);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LT(longest, std::chrono::seconds(1));
  EXPECT_EQ(asked.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  hanging.resume();
  EXPECT_EQ(asked.get().hex(), secret.hex());
}

TEST_F(MungeAuthenticationTest, NamesTheSocketAtWhichNobodyAnswers) {
  const testing::TemporaryFolder folder;
  const std::string socket = folder.file("socket");
  EXPECT_THAT(message_of<InvalidArgument>([&] { MungeAuthentication{socket}; }),
              AllOf(HasSubstr("expected munged to answer at " + socket), HasSubstr("LOCKSTEP_MUNGE_SOCKET")));
  EXPECT_FALSE(MungeAuthentication::is_present(socket));
  EXPECT_FALSE(MungeAuthentication::is_present(folder.write("file", "")));
  EXPECT_TRUE(MungeAuthentication::is_present(munged_->socket()));
}

}  // namespace
}  // namespace lockstep
