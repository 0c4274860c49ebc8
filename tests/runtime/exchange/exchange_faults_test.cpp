// An exchange whose peer calls something else, sends something else, or is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
// C library headers, for their types.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/exchange/exchange_engine.h"
#include "lockstep/runtime/exchange/exchange_message.h"
#include "lockstep/runtime/exchange/make_plan.h"
#include "lockstep/runtime/exchange/shared_memory_link.h"
#include "lockstep/runtime/exchange/socket_link.h"
#include "lockstep/tests/runtime/exchange/exchange_world.h"
#include "lockstep/tests/runtime/exchange/plan_memory.h"

namespace lockstep {
namespace {

using testing::AnyOf;
using testing::ElementsAre;

constexpr size_t kCount = 100;

/// Runs an all-reduce of rank `rank`.
void all_reduce(int rank, int size, ExchangeEngine& engine, uint64_t sequence, const std::string& description,
                size_t count = kCount, ExchangeEngine::Clock::time_point deadline = later()) {
  const auto plan = make_plan(CollectiveKind::kAllReduce, PlanAlgorithm::kHalving, rank, size);
  const PlanMemory memory(plan, values_of(rank, count));
  engine.run(call_of(plan, memory, sequence, description), deadline);
}

class Faults : public testing::TestWithParam<TestTransport> {
 protected:
  ExchangeWorld world(int size) const { return {size, {GetParam(), 4096}}; }
};

TEST_P(Faults, RanksThatCallDifferentCollectivesNameTheCallOfTheOther) {
  auto ranks = world(2);
  EXPECT_THAT(ranks.on_each([](int rank, ExchangeEngine& engine) {
    all_reduce(rank, 2, engine, 0, rank == 0 ? "sum of [2, 3]" : "sum of [3, 2]");
  }),
              ElementsAre(AnyOf("1: called sum of [3, 2]", "1: closed the connection"),
                          AnyOf("0: called sum of [2, 3]", "0: closed the connection")));
}

TEST_P(Faults, NoRankOfManyFinishesIfOneCallsAnotherCollective) {
  auto ranks = world(8);
  const auto errors = ranks.on_each(
      [](int rank, ExchangeEngine& engine) { all_reduce(rank, 8, engine, 0, rank == 5 ? "mean" : "sum"); });
  for (const auto& error : errors) EXPECT_NE(error, "");
  EXPECT_THAT(errors, testing::Contains(AnyOf("5: called mean", "4: called sum")));
}

TEST_P(Faults, CollectivesInAnotherOrderAreTold) {
  auto ranks = world(2);
  const auto errors = ranks.on_each([](int rank, ExchangeEngine& engine) {
    all_reduce(rank, 2, engine, 3, rank == 0 ? "first" : "second");
    all_reduce(rank, 2, engine, 4, rank == 0 ? "second" : "first");
  });
  EXPECT_THAT(errors, testing::Contains(AnyOf("1: called second", "0: called first")));
}

TEST_P(Faults, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  auto ranks = world(2);
  const auto errors = ranks.on_each([](int rank, ExchangeEngine& engine) {
    all_reduce(rank, 2, engine, 0, "sum");
    if (rank == 0)
      all_reduce(rank, 2, engine, 1, "sum", kCount,
                 ExchangeEngine::Clock::now() + std::chrono::milliseconds(50));
  });
  EXPECT_THAT(errors, ElementsAre("1: did not answer in time", ""));
}

TEST_P(Faults, AnInterruptEndsAWait) {
  auto ranks = world(2);
  std::thread interrupting([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks.engine(0).interrupt();
  });
  const auto errors = ranks.on_each([](int rank, ExchangeEngine& engine) {
    all_reduce(rank, 2, engine, 0, "sum");
    if (rank == 0) all_reduce(rank, 2, engine, 1, "sum");
  });
  interrupting.join();
  EXPECT_EQ(errors[0], "-1: the exchange was given up");
}

// An interrupted engine closes its links, so that the other ranks do not wait for it.
TEST_P(Faults, TheOthersNoticeAnInterrupt) {
  auto ranks = world(2);
  const auto errors = ranks.on_each([](int rank, ExchangeEngine& engine) {
    all_reduce(rank, 2, engine, 0, "sum");
    if (rank == 1) engine.interrupt();
    all_reduce(rank, 2, engine, 1, "sum");
  });
  EXPECT_THAT(errors, ElementsAre("1: closed the connection", "-1: the exchange was given up"));
}

// A process is killed while it sends, so that a part of its message has arrived.
TEST_P(Faults, APeerThatIsKilledWithinAMessageIsNamed) {
  for (const int rank : {0, 1}) values_of(rank, 100'000);  // made before, so that both send at once
  for (int attempt = 0; attempt < 20; ++attempt) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const bool is_shared = GetParam() == TestTransport::kSharedMemory;
    const auto engine_of = [&](int rank) {
      return ExchangeEngine::Options{.rank = rank,
                                     .size = 2,
                                     .generation = 7,
                                     .connect = [is_shared, rank, socket = ends[rank]](
                                                    int, auto deadline) -> std::unique_ptr<ExchangeLink> {
                                       if (!is_shared) return std::make_unique<SocketLink>(socket);
                                       if (rank == 1)
                                         return SharedMemoryLink::share(socket,
                                                                        SharedMemoryLink::allocate(4096));
                                       return SharedMemoryLink::receive_from(socket, deadline);
                                     }};
    };
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      ExchangeEngine engine(engine_of(1));
      for (uint64_t sequence = 0;; ++sequence) all_reduce(1, 2, engine, sequence, "sum", 100'000);
    }
    close(ends[1]);
    ExchangeEngine engine(engine_of(0));
    std::thread killing([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5 + attempt));
      kill(child, SIGKILL);
    });
    std::string error;
    try {
      for (uint64_t sequence = 0;; ++sequence) all_reduce(0, 2, engine, sequence, "sum", 100'000);
    } catch (const ExchangeError& caught) {
      error = std::to_string(caught.peer) + ": " + caught.what();
      EXPECT_EQ(caught.kind, ExchangeError::Kind::kClosed);
    }
    killing.join();
    waitpid(child, nullptr, 0);
    EXPECT_EQ(error, "1: closed the connection");
  }
}

INSTANTIATE_TEST_SUITE_P(Over, Faults, testing::Values(TestTransport::kSockets, TestTransport::kSharedMemory),
                         [](const auto& tested) {
                           return tested.param == TestTransport::kSockets ? "Sockets" : "SharedMemory";
                         });

/// Returns rank 0's error in an all-reduce of two ranks, of which rank 1 sends these bytes, and then closes.
std::optional<ExchangeError> error_after(const std::vector<uint8_t>& bytes) {
  ExchangeWorld ranks(2, {});
  const int socket = ranks.take_socket(1, 0);
  EXPECT_EQ(write(socket, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  shutdown(socket, SHUT_WR);
  std::optional<ExchangeError> caught;
  try {
    all_reduce(0, 2, ranks.engine(0), 5, "sum");
  } catch (const ExchangeError& error) {
    caught = error;
  }
  close(socket);
  return caught;
}

/// A header that fits the first message of error_after(), which has half of the values.
MessageHeader expected_header() {
  return {.generation = 7,
          .sequence = 5,
          .fingerprint = fingerprint_of("sum"),
          .payload_bytes = kCount / 2 * sizeof(double),
          .text = "sum"};
}

std::string text_after(const std::vector<uint8_t>& bytes, ExchangeError::Kind kind) {
  const auto error = error_after(bytes);
  if (!error) return "no error";
  EXPECT_EQ(error->kind, kind);
  EXPECT_EQ(error->peer, 1);
  return error->what();
}

TEST(ForeignBytes, AreRefused) {
  EXPECT_EQ(text_after(std::vector<uint8_t>(100, 'x'), ExchangeError::Kind::kBadMessage),
            "expected a message, but got other bytes");
}

TEST(ForeignBytes, HalfAMessageIsAClosedConnection) {
  auto bytes = encode(expected_header());
  EXPECT_EQ(text_after({bytes.begin(), bytes.begin() + 20}, ExchangeError::Kind::kClosed),
            "closed the connection");
  bytes.resize(bytes.size() + 13);
  EXPECT_EQ(text_after(bytes, ExchangeError::Kind::kClosed), "closed the connection");
}

TEST(ForeignBytes, AHeaderThatClaimsTooMuchIsRefused) {
  auto header = expected_header();
  header.payload_bytes = uint64_t{1} << 62;
  EXPECT_EQ(text_after(encode(header), ExchangeError::Kind::kBadMessage),
            "sent message 0 of 4611686018427387904 bytes, but expected message 0 of 400 bytes");
  auto bytes = encode(expected_header());
  bytes[6] = bytes[7] = 0xff;  // the size of the text
  EXPECT_EQ(text_after(bytes, ExchangeError::Kind::kBadMessage),
            "expected at most 240 bytes of text in a message, but got 65535");
}

TEST(ForeignBytes, AMessageOfAnotherGenerationIsRefused) {
  auto header = expected_header();
  header.generation = 6;
  EXPECT_EQ(text_after(encode(header), ExchangeError::Kind::kBadMessage),
            "sent a message of another start or channel");
}

TEST(ForeignBytes, AnotherVersionIsRefused) {
  auto bytes = encode(expected_header());
  bytes[4] = 2;
  EXPECT_EQ(text_after(bytes, ExchangeError::Kind::kBadMessage),
            "expected version 1 of a message, but got version 2");
}

TEST(MessageHeader, IsReadAsItWasWritten) {
  auto header = expected_header();
  header.number = 3;
  EXPECT_EQ(decode_header(encode(header)), header);
  header.text = std::string(1000, 't');
  const auto bytes = encode(header);
  EXPECT_EQ(bytes.size(), kMessageHeaderBytes + kMaxTextBytes);
  EXPECT_EQ(decode_header(bytes).text, std::string(kMaxTextBytes, 't'));
}

}  // namespace
}  // namespace lockstep
