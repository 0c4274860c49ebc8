#include "lockstep/runtime/workers/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/udp_relay.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::Property;
using testing::RelayFaults;
using ::testing::Throws;
using testing::UdpRelay;

HeartbeatOptions heartbeat_options(int rank, int world_size, milliseconds lost_after = milliseconds(3500)) {
  static const JobToken token = JobToken::random();
  return {.rank = rank, .world_size = world_size, .token = token, .incarnation = 3, .lost_after = lost_after};
}

Peer heartbeat_at(int rank, int port, const std::string& session = std::string(64, '0')) {
  return {.rank = rank,
          .name = "worker " + std::to_string(rank) + " (127.0.0.1)",
          .host = "127.0.0.1",
          .port = port,
          .session = session};
}

Peer heartbeat_at(int rank, const Heartbeat& heartbeat) {
  return heartbeat_at(rank, heartbeat.port(), heartbeat.session());
}

/// Waits until `condition` holds; returns false after `limit`.
bool comes_true_within(milliseconds limit, const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + limit; !condition();) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

auto is_lost(int rank, const std::string& reason) {
  return Optional(AllOf(Field(&LostPeer::rank, rank), Field(&LostPeer::reason, HasSubstr(reason))));
}

/// Rank 0 and rank 1, each of which hears the other through a relay.
class HeartbeatPair {
 public:
  explicit HeartbeatPair(milliseconds lost_after, RelayFaults faults = {})
      : hub_(heartbeat_options(0, 2, lost_after), {}),
        worker_(heartbeat_options(1, 2, lost_after), {}),
        to_hub_(hub_.port(), faults, 1),
        to_worker_(worker_.port(), faults, 2) {
    hub_.start({heartbeat_at(1, to_worker_.port(), worker_.session())});
    worker_.start({heartbeat_at(0, to_hub_.port(), hub_.session())});
  }

  bool becomes_acquainted() const {
    return comes_true_within(
        seconds(10), [this] { return hub_.counters().received > 0 && worker_.counters().received > 0; });
  }
  bool both_lost_within(milliseconds limit) const {
    return comes_true_within(limit, [this] { return hub_.lost() && worker_.lost(); });
  }

  Heartbeat hub_;
  Heartbeat worker_;
  UdpRelay to_hub_;
  UdpRelay to_worker_;
};

TEST(Heartbeat, HearsEveryPeerAndTakesAGoodbyeForNoLoss) {
  std::atomic<int> alarms = 0;
  std::vector<std::unique_ptr<Heartbeat>> all;
  all.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    all.push_back(std::make_unique<Heartbeat>(heartbeat_options(rank, 3, milliseconds(600)),
                                              [&](const LostPeer&) { ++alarms; }));
  }
  all[0]->start({heartbeat_at(2, *all[2]), heartbeat_at(1, *all[1])});
  for (const int rank : {1, 2}) all[static_cast<size_t>(rank)]->start({heartbeat_at(0, *all[0])});
  ASSERT_TRUE(comes_true_within(seconds(10), [&] {
    return all[0]->counters().received >= 10 && all[1]->counters().received >= 5 &&
           all[2]->counters().received >= 5;
  }));

  const auto begin = std::chrono::steady_clock::now();
  all[2].reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(500)) << "the hub answers a goodbye";
  // Long enough to notice the worker's closed port or its silence.
  std::this_thread::sleep_for(milliseconds(900));
  all[0].reset();
  std::this_thread::sleep_for(milliseconds(900));
  EXPECT_EQ(all[1]->lost(), std::nullopt);
  all[1].reset();
  EXPECT_EQ(alarms, 0);
}

TEST(Heartbeat, SendsOneMessageToAPeerAnInterval) {
  HeartbeatPair pair(milliseconds(3500));
  ASSERT_TRUE(pair.becomes_acquainted());
  const auto before = pair.hub_.counters();
  const auto rounds_before = pair.hub_.rounds();
  std::this_thread::sleep_for(seconds(1));
  const auto after = pair.hub_.counters();
  const auto rounds_after = pair.hub_.rounds();
  // Ten, or fewer on a busy machine.
  EXPECT_GE(after.sent - before.sent, 2u);
  EXPECT_LE(after.sent - before.sent, 12u);
  EXPECT_EQ(after.rejected, 0u);
  ASSERT_TRUE(rounds_before && rounds_after);
  EXPECT_GE(*rounds_after - *rounds_before, 2u) << "it looks for lost peers as often as it sends";
  EXPECT_LE(*rounds_after - *rounds_before, 12u);
  pair.hub_.stop();
  EXPECT_EQ(pair.hub_.rounds(), std::nullopt);
}

TEST(Heartbeat, DropsAndCountsForeignMessages) {
  HeartbeatPair pair(milliseconds(3500));
  ASSERT_TRUE(pair.becomes_acquainted());
  const HeartbeatOptions options = heartbeat_options(1, 2);
  // All messages claim that the hub is lost, so the hub would believe any message that it parsed.
  const HeartbeatMessage accusation{
      .kind = HeartbeatKind::kBeat, .sequence = 1'000'000, .sender = 1, .lost = 0};
  const HeartbeatSender worker{
      .rank = 1, .incarnation = 3, .session = pair.worker_.session(), .hub_session = pair.hub_.session()};
  HeartbeatSender earlier = worker;
  earlier.incarnation = 2;
  const HeartbeatPacket right = HeartbeatSeal(options.token, worker).seal(accusation);

  UdpSocket stranger("127.0.0.1");
  const SocketAddress hub = stranger.resolve("127.0.0.1", pair.hub_.port());
  uint64_t sent = 0;
  const auto send = [&](std::span<const uint8_t> bytes) {
    if (stranger.send_to(hub, bytes)) ++sent;
  };
  std::mt19937_64 generator(5);
  for (size_t size = 0; size < 100; ++size) {
    std::vector<uint8_t> garbage(size);
    std::generate(garbage.begin(), garbage.end(), [&] { return static_cast<uint8_t>(generator()); });
    send(garbage);
  }
  send(std::vector<uint8_t>(60'000, 1));
  send(HeartbeatSeal(JobToken::from_text("a wrong token"), worker).seal(accusation));
  send(HeartbeatSeal(options.token, earlier).seal(accusation));
  send(std::span(right).first(right.size() - 1));
  EXPECT_EQ(sent, 104u);
  EXPECT_TRUE(comes_true_within(seconds(10), [&] { return pair.hub_.counters().rejected >= sent; }));
  EXPECT_EQ(pair.hub_.counters().rejected, sent);
  EXPECT_EQ(pair.hub_.counters().outdated, 0u);
  EXPECT_EQ(pair.hub_.lost(), std::nullopt);

  send(right);
  ASSERT_TRUE(comes_true_within(seconds(10), [&] { return pair.hub_.lost().has_value(); }));
  EXPECT_THAT(pair.hub_.lost(), is_lost(1, "it is cut off and hears nothing from rank 0"));
  send(right);
  EXPECT_TRUE(comes_true_within(seconds(10), [&] { return pair.hub_.counters().outdated >= 1; }))
      << "replayed";
}

TEST(Heartbeat, FindsALinkCutInOneDirection) {
  HeartbeatPair from_worker(milliseconds(1000));
  HeartbeatPair to_worker(milliseconds(1000));
  ASSERT_TRUE(from_worker.becomes_acquainted());
  ASSERT_TRUE(to_worker.becomes_acquainted());
  from_worker.to_hub_.set_faults({.lost_percent = 100});
  to_worker.to_worker_.set_faults({.lost_percent = 100});
  EXPECT_TRUE(from_worker.both_lost_within(milliseconds(2500)));
  EXPECT_TRUE(to_worker.both_lost_within(milliseconds(2500)));
  EXPECT_THAT(from_worker.hub_.lost(), is_lost(1, "no sign of life for 1.0 s"));
  EXPECT_THAT(from_worker.worker_.lost(),
              is_lost(1, "given up by the others: worker 0 (127.0.0.1) heard nothing from this process for"));
  EXPECT_THAT(to_worker.hub_.lost(), is_lost(1, "cut off"));
  EXPECT_THAT(to_worker.worker_.lost(), is_lost(0, "no sign of life for 1.0 s"));
}

TEST(Heartbeat, RaisesNoAlarmUnderLossDelayAndDuplicates) {
  const HeartbeatPair pair(milliseconds(3500),
                           {.lost_percent = 50, .duplicated_percent = 20, .most_delay = milliseconds(500)});
  std::this_thread::sleep_for(seconds(8));
  EXPECT_EQ(pair.hub_.lost(), std::nullopt);
  EXPECT_EQ(pair.worker_.lost(), std::nullopt);
  for (const UdpRelay* relay : {&pair.to_hub_, &pair.to_worker_}) {
    const auto counters = relay->counters();
    EXPECT_GT(counters.lost, counters.arrived / 4) << "of " << counters.arrived;
    EXPECT_GT(counters.overtaken, 0);
  }
  EXPECT_GT(pair.hub_.counters().outdated, 0u);
  EXPECT_EQ(pair.hub_.counters().rejected, 0u);
}

TEST(Heartbeat, RaisesNoAlarmUnderDoubleLoad) {
  HeartbeatPair pair(milliseconds(1500));
  ASSERT_TRUE(pair.becomes_acquainted());
  std::atomic<bool> enough = false;
  std::vector<std::thread> load;
  for (unsigned i = 0; i < 2 * std::max(1u, std::thread::hardware_concurrency()); ++i) {
    load.emplace_back([&] {
      while (!enough) {
      }
    });
  }
  std::this_thread::sleep_for(seconds(3));
  enough = true;
  for (std::thread& thread : load) thread.join();
  EXPECT_EQ(pair.hub_.lost(), std::nullopt);
  EXPECT_EQ(pair.worker_.lost(), std::nullopt);
}

TEST(Heartbeat, EndsWithoutAnAnswerAfterASecond) {
  HeartbeatPair pair(milliseconds(3500));
  ASSERT_TRUE(pair.becomes_acquainted());
  pair.to_hub_.set_faults({.lost_percent = 100});
  const auto begin = std::chrono::steady_clock::now();
  pair.worker_.stop();
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, milliseconds(900)) << "it asks again meanwhile";
  EXPECT_LT(took, seconds(3));
  pair.worker_.stop();  // a second call does nothing
}

TEST(Heartbeat, RefusesOptionsAndPeersOutOfRange) {
  const auto refuses = [](const HeartbeatOptions& options, const std::string& text) {
    EXPECT_THAT([&] { Heartbeat(options, {}); },
                Throws<InvalidArgument>(Property(&InvalidArgument::what, HasSubstr(text))));
  };
  refuses(heartbeat_options(2, 2), "[Heartbeat] expected a rank from 0 to 1, but got 2");
  refuses(heartbeat_options(0, 0), "expected a world size of 1 or more, but got 0");
  refuses(heartbeat_options(0, 1, milliseconds(150)), "lost_after of two intervals or more, but got 150 ms");

  const auto refuses_peers = [](int rank, const std::vector<Peer>& peers, const std::string& text) {
    Heartbeat heartbeat(heartbeat_options(rank, 3), {});
    EXPECT_THAT([&] { heartbeat.start(peers); },
                Throws<InvalidArgument>(Property(&InvalidArgument::what, HasSubstr(text))));
  };
  refuses_peers(0, {heartbeat_at(1, 9)}, "expected 2 peers of rank 0, but got 1");
  refuses_peers(0, {heartbeat_at(1, 9), heartbeat_at(1, 9)}, "expected each rank once, but got rank 1 twice");
  refuses_peers(1, {heartbeat_at(2, 9)}, "expected rank 0 among the peers");
  refuses_peers(1, {heartbeat_at(1, 9)}, "expected another rank of 3, but got rank 1");
  refuses_peers(1, {heartbeat_at(3, 9)}, "expected another rank of 3, but got rank 3");
  refuses_peers(1, {heartbeat_at(0, 9, "")}, "a session of 64 characters of rank 0, but got 0");
  refuses_peers(1, {heartbeat_at(0, 9, std::string(65, '0'))}, "of rank 0, but got 65");
  refuses_peers(1, {heartbeat_at(0, 0)}, "a port from 1 to 65535 of worker 0 (127.0.0.1), but got 0");

  Heartbeat alone(heartbeat_options(0, 1), {});
  alone.start({});
  EXPECT_THROW(alone.start({}), InvalidArgument);
}

TEST(Heartbeat, NamesTheAddressItCannotHave) {
  HeartbeatOptions options = heartbeat_options(0, 1);
  options.bind_address = "203.0.113.1";
  EXPECT_THAT([&] { Heartbeat(options, {}); },
              Throws<std::system_error>(Property(&std::system_error::what, HasSubstr("203.0.113.1:0: "))));
}

}  // namespace
}  // namespace lockstep
