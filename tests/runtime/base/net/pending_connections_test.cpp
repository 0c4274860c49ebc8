#include "lockstep/runtime/base/net/pending_connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <system_error>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/tls_handshake.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Time = PendingConnections::Clock::time_point;

constexpr milliseconds kSlow{250};
constexpr milliseconds kTimeout{5'000};
constexpr Time kBegin{std::chrono::hours(1)};

/// A connection that does what a test wants when something comes, and notes when it is closed.
class FakeConnection : public PendingConnection {
 public:
  using Step = std::function<bool()>;
  FakeConnection(int number, std::vector<int>& closed, Step step)
      : number_(number), closed_(closed), step_(std::move(step)) {}
  ~FakeConnection() override { closed_.push_back(number_); }
  FakeConnection(const FakeConnection&) = delete;
  FakeConnection& operator=(const FakeConnection&) = delete;

  bool advance() override { return step_(); }
  pollfd awaited() const override { return {number_, POLLIN, 0}; }
  bool has_greeted() const override { return has_greeted_; }
  void greet() { has_greeted_ = true; }

 private:
  const int number_;
  std::vector<int>& closed_;
  const Step step_;
  bool has_greeted_ = false;
};

class PendingConnectionsTest : public ::testing::Test {
 protected:
  void add(
      int number, Time now, const FakeConnection::Step& step = [] { return false; }) {
    pending_.add(std::make_unique<FakeConnection>(number, closed_, step), now);
  }
  /// As if something had come to connections.
  void advance(const std::vector<int>& numbers) {
    std::vector<pollfd> polled;
    pending_.append_awaited(polled);
    for (auto& each : polled)
      if (std::ranges::count(numbers, each.fd) > 0) each.revents = each.events;
    pending_.advance(polled);
  }

  std::vector<int> closed_;
  PendingConnections pending_{{.max_connections = 3, .timeout = kTimeout}};
};

TEST_F(PendingConnectionsTest, HaveRoomUntilAllPlacesAreTaken) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(pending_.has_room(kBegin));
    add(i, kBegin);
  }
  EXPECT_FALSE(pending_.has_room(kBegin));
  EXPECT_THAT(closed_, IsEmpty());
}

TEST_F(PendingConnectionsTest, LetOthersWaitUntilTheOldestIsSlow) {
  for (int i = 0; i < 3; ++i) add(i, kBegin + i * milliseconds(100));
  EXPECT_FALSE(pending_.has_room(kBegin + kSlow - milliseconds(1)));
  EXPECT_TRUE(pending_.has_room(kBegin + kSlow));
  add(3, kBegin + kSlow);
  EXPECT_THAT(closed_, ElementsAre(0));
  EXPECT_EQ(pending_.num_rejected(), 1U);
  EXPECT_FALSE(pending_.has_room(kBegin + milliseconds(100) + kSlow - milliseconds(1)));
  EXPECT_TRUE(pending_.has_room(kBegin + milliseconds(100) + kSlow));
}

TEST_F(PendingConnectionsTest, LetThoseThatHaveNotGreetedLeaveFirst) {
  constexpr milliseconds kSilent{5};
  std::vector<int> closed;
  PendingConnections pending({.max_connections = 2, .slow_after = kSlow, .silent_after = kSilent});
  const auto add_to = [&](int number, Time now) {
    auto connection = std::make_unique<FakeConnection>(number, closed, [] { return false; });
    FakeConnection& added = *connection;
    pending.add(std::move(connection), now);
    return &added;
  };
  add_to(0, kBegin)->greet();
  add_to(1, kBegin);
  std::vector<pollfd> polled;
  pending.append_awaited(polled);
  polled[1].revents = POLLIN;
  pending.advance(polled);  // a part of a greeting
  EXPECT_FALSE(pending.has_room(kBegin));
  EXPECT_EQ(pending.next_change(kBegin), kBegin + kSilent);
  EXPECT_TRUE(pending.has_room(kBegin + kSilent));
  add_to(2, kBegin + kSilent);
  EXPECT_THAT(closed, ElementsAre(1));
  EXPECT_FALSE(pending.has_room(kBegin + kSilent));
  add_to(3, kBegin + 2 * kSilent);
  EXPECT_THAT(closed, ElementsAre(1, 2));
  EXPECT_TRUE(pending.has_room(kBegin + kSlow));
  add_to(4, kBegin + kSlow);
  EXPECT_THAT(closed, ElementsAre(1, 2, 0)) << "the oldest of those that are slow";
}

TEST_F(PendingConnectionsTest, KeepSlowOnesWhileNobodyWaits) {
  for (int i = 0; i < 3; ++i) add(i, kBegin);
  pending_.end_late(kBegin + kTimeout - milliseconds(1));
  EXPECT_THAT(closed_, IsEmpty());
}

TEST_F(PendingConnectionsTest, CloseEachOneAfterItsTimeHoweverMuchItSends) {
  add(0, kBegin);
  add(1, kBegin + milliseconds(1));
  for (milliseconds time{0}; time < kTimeout; time += milliseconds(1)) {
    advance({0, 1});
    pending_.end_late(kBegin + time);
    ASSERT_THAT(closed_, IsEmpty());
  }
  pending_.end_late(kBegin + kTimeout);
  EXPECT_THAT(closed_, ElementsAre(0));
  EXPECT_EQ(pending_.num_rejected(), 1U);
  EXPECT_EQ(pending_.num_wrong_tokens(), 0U);
}

TEST_F(PendingConnectionsTest, AdvanceOnlyThoseForWhichSomethingHasCome) {
  std::vector<int> advanced;
  for (int i = 0; i < 3; ++i) {
    add(i, kBegin, [&advanced, i] {
      advanced.push_back(i);
      return i == 1;  // is over
    });
  }
  advance({1, 2});
  EXPECT_THAT(advanced, ElementsAre(1, 2));
  EXPECT_THAT(closed_, ElementsAre(1));
  advance({0, 1, 2});
  EXPECT_THAT(advanced, ElementsAre(1, 2, 0, 2));
}

TEST_F(PendingConnectionsTest, FreeThePlaceOfOneThatIsAdmitted) {
  for (int i = 0; i < 3; ++i) add(i, kBegin, [i] { return i == 1; });
  advance({1});
  EXPECT_TRUE(pending_.has_room(kBegin));
  EXPECT_EQ(pending_.num_rejected(), 0U);
}

TEST_F(PendingConnectionsTest, CountWhyOthersAreClosed) {
  using Reason = HandshakeError::Reason;
  const auto ends_with = [this](const FakeConnection::Step& step) {
    const uint64_t rejected = pending_.num_rejected();
    const uint64_t wrong_tokens = pending_.num_wrong_tokens();
    closed_.clear();
    add(7, kBegin, step);
    advance({7});
    EXPECT_THAT(closed_, ElementsAre(7));
    return std::pair(pending_.num_rejected() - rejected, pending_.num_wrong_tokens() - wrong_tokens);
  };
  const auto ends_by = [&](Reason reason) {
    return ends_with([reason]() -> bool { throw HandshakeError(reason, "a test"); });
  };
  EXPECT_EQ(ends_by(Reason::kToken), std::pair(uint64_t{1}, uint64_t{1}));
  EXPECT_EQ(ends_by(Reason::kIdentity), std::pair(uint64_t{1}, uint64_t{0}));
  EXPECT_EQ(ends_by(Reason::kForeign), std::pair(uint64_t{1}, uint64_t{0}));
  EXPECT_EQ(ends_by(Reason::kGranted), std::pair(uint64_t{0}, uint64_t{0}));
  EXPECT_EQ(ends_with([]() -> bool { throw std::system_error(ECONNRESET, std::generic_category()); }),
            std::pair(uint64_t{1}, uint64_t{0}));
  EXPECT_EQ(ends_with([]() -> bool { throw std::bad_alloc(); }), std::pair(uint64_t{1}, uint64_t{0}));
}

// A server that sleeps until the next change neither misses one nor wakes without cause.
TEST_F(PendingConnectionsTest, TellWhenTheNextChangeIs) {
  EXPECT_EQ(pending_.next_change(kBegin), Time::max());
  std::mt19937 random(5);
  Time now = kBegin;
  for (int i = 0; i < 2'000; ++i) {
    if (random() % 2 == 0 && pending_.has_room(now)) add(i, now);
    if (pending_.size() == 0) continue;
    const Time change = pending_.next_change(now);
    ASSERT_GT(change, now);
    const bool had_room = pending_.has_room(now);
    const size_t num_closed = closed_.size();
    const auto has_changed = [&](Time time) {
      pending_.end_late(time);
      return closed_.size() > num_closed || pending_.has_room(time) != had_room;
    };
    // Without a wait, a slow one gives room later, which a server need not know while there is room.
    ASSERT_FALSE(has_changed(change - milliseconds(1)));
    if (random() % 2 == 0) {
      ASSERT_TRUE(has_changed(change));
      now = change;
    } else {
      now += std::min(milliseconds(random() % 400),
                      std::chrono::floor<milliseconds>(change - now) - milliseconds(1));
    }
  }
  EXPECT_GT(closed_.size(), 100U);
}

// 1,000 strangers who say nothing are before a client in the queue, and others come all the time.
TEST_F(PendingConnectionsTest, LetAClientInWhateverComesWithIt) {
  constexpr int kPlaces = 64;
  constexpr int kClient = 1'000;
  constexpr milliseconds kHandshake{200};
  std::vector<int> closed;
  PendingConnections pending({.max_connections = kPlaces, .timeout = kTimeout});
  std::deque<int> queue;
  int next = 0;
  Time now = kBegin;
  Time accepted{};
  bool is_admitted = false;
  const auto step_of = [&](int number) -> FakeConnection::Step {
    if (number != kClient) return [] { return false; };
    return [&] {
      is_admitted = now >= accepted + kHandshake;
      return is_admitted;
    };
  };
  for (; !is_admitted && closed.size() < 5'000; now += milliseconds(1)) {
    while (queue.size() < 4'096) queue.push_back(next++);
    std::vector<pollfd> polled;
    pending.append_awaited(polled);
    for (auto& each : polled) each.revents = POLLIN;
    pending.advance(polled);
    pending.end_late(now);
    while (pending.has_room(now)) {
      const int number = queue.front();
      queue.pop_front();
      if (number == kClient) accepted = now;
      pending.add(std::make_unique<FakeConnection>(number, closed, step_of(number)), now);
    }
    ASSERT_LE(pending.size(), static_cast<size_t>(kPlaces));
  }
  EXPECT_TRUE(is_admitted);
  EXPECT_EQ(accepted - kBegin, kClient / kPlaces * kSlow);
}

TEST(PendingConnections, NeedAPlace) {
  EXPECT_THROW(PendingConnections({.max_connections = 0}), InvalidArgument);
  EXPECT_THROW(PendingConnections({.max_connections = -1}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
