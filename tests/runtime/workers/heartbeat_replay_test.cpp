// Packets that an attacker who can read and write the network, but does not know the token, sends to a
// heartbeat.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/workers/heartbeat.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using RecordedPacket = std::vector<uint8_t>;

// Only a failing test waits this long.
constexpr std::chrono::seconds kReplayPatience{20};
constexpr uint64_t kReplayIncarnation = 3;

/// All jobs of these tests have the same token and restart count.
HeartbeatOptions replay_options(int rank, int world_size = 2) {
  static const JobToken token = JobToken::random();
  return {.rank = rank, .world_size = world_size, .token = token, .incarnation = kReplayIncarnation};
}

bool happens(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + kReplayPatience; !condition();) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

/// The other end of a heartbeat, played by the test: it knows the token, reads what the heartbeat sends,
/// records all packets, and sends what it likes.
class PlayedPeer {
 public:
  PlayedPeer(int rank, const Heartbeat& other, const std::string& hub_session)
      : rank_(rank),
        receiver_(socket_.resolve("127.0.0.1", other.port())),
        own_(replay_options(0).token, {.rank = rank,
                                       .incarnation = kReplayIncarnation,
                                       .session = session_,
                                       .hub_session = rank == 0 ? session_ : hub_session}),
        others_(replay_options(0).token, {.rank = rank == 0 ? 1 : 0,
                                          .incarnation = kReplayIncarnation,
                                          .session = other.session(),
                                          .hub_session = rank == 0 ? session_ : hub_session}) {}

  Peer peer() const {
    return {.rank = rank_, .name = {}, .host = "127.0.0.1", .port = socket_.port(), .session = session_};
  }

  /// Sends a message, under the next sequence, and returns its packet.
  RecordedPacket send(HeartbeatMessage message) {
    const RecordedPacket packet = seal(message);
    send(packet);
    return packet;
  }
  RecordedPacket seal(HeartbeatMessage message) {
    message.sender = rank_;
    message.sequence = ++sequence_;
    const HeartbeatPacket packet = own_.seal(message);
    return {packet.begin(), packet.end()};
  }
  void send(std::span<const uint8_t> packet) { EXPECT_TRUE(socket_.send_to(receiver_, packet)); }

  /// Waits for a message that fits, and records all packets up to it.
  bool hears(const std::function<bool(const HeartbeatMessage&)>& fits) {
    return happens([&] {
      RecordedPacket buffer(1000);
      while (const auto size = socket_.receive(buffer)) {
        recorded_.emplace_back(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*size));
        const auto message = others_.open(recorded_.back());
        if (message && fits(*message)) return true;
      }
      return false;
    });
  }
  bool hears(HeartbeatKind kind) {
    return hears([kind](const HeartbeatMessage& message) { return message.kind == kind; });
  }
  bool hears_loss_of(int rank) {
    return hears([rank](const HeartbeatMessage& message) { return message.lost == rank; });
  }

  const std::vector<RecordedPacket>& recorded() const { return recorded_; }

 private:
  const int rank_;
  const std::string session_ = JobToken::random().hex();
  UdpSocket socket_{"127.0.0.1"};
  const SocketAddress receiver_;
  HeartbeatSeal own_;
  HeartbeatSeal others_;
  uint64_t sequence_ = 0;
  std::vector<RecordedPacket> recorded_;
};

/// A hub whose worker 1 is played by the test.
struct HubUnderAttack {
  HubUnderAttack() { hub.start({worker.peer()}); }

  bool has_counted(uint64_t received, uint64_t outdated, uint64_t rejected) const {
    return happens([&] {
             const auto counters = hub.counters();
             return counters.received + counters.outdated + counters.rejected >=
                    received + outdated + rejected;
           }) &&
           hub.counters().received == received && hub.counters().outdated == outdated &&
           hub.counters().rejected == rejected;
  }

  Heartbeat hub{replay_options(0), {}};
  PlayedPeer worker{1, hub, hub.session()};
};

constexpr HeartbeatMessage kAlive{};
constexpr HeartbeatMessage kFailed{.lost = 1, .reason = LossReason::kFailed};
constexpr HeartbeatMessage kHubIsLost{.lost = 0, .reason = LossReason::kSilent};
constexpr HeartbeatMessage kLeaves{.kind = HeartbeatKind::kLeaving};
constexpr HeartbeatMessage kHeardLeaving{.kind = HeartbeatKind::kLeavingHeard};

/// The packets of a worker that fails, and of one that leaves, in an earlier job: all kinds that a worker
/// sends.
std::vector<RecordedPacket> packets_of_an_earlier_worker() {
  std::vector<RecordedPacket> packets;
  for (const bool fails : {true, false}) {
    Heartbeat worker(replay_options(1), {});
    PlayedPeer hub(0, worker, {});
    worker.start({hub.peer()});
    EXPECT_TRUE(hub.hears(HeartbeatKind::kBeat));
    if (fails) worker.tell_failure();
    EXPECT_TRUE(!fails || hub.hears_loss_of(1));
    hub.send(kLeaves);
    EXPECT_TRUE(hub.hears(HeartbeatKind::kLeavingHeard));
    worker.stop();
    EXPECT_TRUE(hub.hears(HeartbeatKind::kLeaving));
    packets.insert(packets.end(), hub.recorded().begin(), hub.recorded().end());
  }
  return packets;
}

/// The packets of a hub that gives up the worker, and then leaves.
std::vector<RecordedPacket> packets_of_an_earlier_hub() {
  HubUnderAttack job;
  job.worker.send(kLeaves);
  EXPECT_TRUE(job.worker.hears(HeartbeatKind::kLeavingHeard));
  std::vector<RecordedPacket> packets = job.worker.recorded();

  HubUnderAttack other;
  EXPECT_TRUE(other.worker.hears(HeartbeatKind::kBeat));
  other.worker.send(kFailed);
  EXPECT_TRUE(other.worker.hears_loss_of(1));
  other.hub.stop();
  EXPECT_TRUE(other.worker.hears(HeartbeatKind::kLeaving));
  packets.insert(packets.end(), other.worker.recorded().begin(), other.worker.recorded().end());
  return packets;
}

TEST(HeartbeatReplay, OfAnEarlierJobEndsNoLaterOne) {
  const auto of_worker = packets_of_an_earlier_worker();
  const auto of_hub = packets_of_an_earlier_hub();
  Heartbeat hub(replay_options(0), {});
  Heartbeat worker(replay_options(1), {});
  UdpSocket attacker("127.0.0.1");
  const auto replay = [&attacker](const std::vector<RecordedPacket>& packets, const Heartbeat& to) {
    const SocketAddress address = attacker.resolve("127.0.0.1", to.port());
    for (const RecordedPacket& packet : packets) EXPECT_TRUE(attacker.send_to(address, packet));
  };
  // The first packets that they hear, since they come before start().
  replay(of_worker, hub);
  replay(of_hub, worker);
  hub.start({{.rank = 1, .host = "127.0.0.1", .port = worker.port(), .session = worker.session()}});
  worker.start({{.rank = 0, .host = "127.0.0.1", .port = hub.port(), .session = hub.session()}});
  ASSERT_TRUE(happens([&] { return hub.counters().received > 3 && worker.counters().received > 3; }));
  // And once more, when they know each other.
  replay(of_worker, hub);
  replay(of_hub, worker);
  const auto received = hub.counters().received;
  EXPECT_TRUE(happens([&] {
    return hub.counters().rejected >= 2 * of_worker.size() &&
           worker.counters().rejected >= 2 * of_hub.size() && hub.counters().received > received + 3;
  }));
  for (const Heartbeat* heartbeat : {&hub, &worker}) {
    EXPECT_EQ(heartbeat->lost(), std::nullopt);
    EXPECT_EQ(heartbeat->counters().outdated, 0u);
  }
  EXPECT_EQ(hub.counters().rejected, 2 * of_worker.size());
  EXPECT_EQ(worker.counters().rejected, 2 * of_hub.size());
}

TEST(HeartbeatReplay, IsOutdatedInTheSameJob) {
  HubUnderAttack job;
  // Held back by the attacker, until newer messages have come.
  const std::vector<RecordedPacket> delayed = {job.worker.seal(kFailed), job.worker.seal(kHubIsLost),
                                               job.worker.seal(kLeaves), job.worker.seal(kHeardLeaving)};
  const RecordedPacket alive = job.worker.send(kAlive);
  ASSERT_TRUE(job.has_counted(1, 0, 0));
  for (const RecordedPacket& packet : delayed) job.worker.send(packet);
  job.worker.send(alive);
  EXPECT_TRUE(job.has_counted(1, 5, 0));
  EXPECT_EQ(job.hub.lost(), std::nullopt);

  const RecordedPacket leaving = job.worker.send(kLeaves);
  ASSERT_TRUE(job.worker.hears(HeartbeatKind::kLeavingHeard));
  ASSERT_TRUE(job.has_counted(2, 5, 0));
  const auto sent = job.hub.counters().sent;
  for (int copy = 0; copy < 5; ++copy) job.worker.send(leaving);
  job.worker.send(alive);
  EXPECT_TRUE(job.has_counted(2, 11, 0));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(job.hub.counters().sent, sent) << "it answers no repeated goodbye, and the worker is still gone";
}

TEST(HeartbeatReplay, OfAFailureIsOutdatedAndTheFirstLossStays) {
  HubUnderAttack job;
  const RecordedPacket accusation = job.worker.seal(kHubIsLost);
  const RecordedPacket failure = job.worker.send(kFailed);
  ASSERT_TRUE(job.has_counted(1, 0, 0));
  ASSERT_TRUE(happens([&] { return job.hub.lost().has_value(); }));
  EXPECT_EQ(job.hub.lost()->reason, "it has failed");
  job.worker.send(failure);
  job.worker.send(accusation);
  EXPECT_TRUE(job.has_counted(1, 2, 0));
  EXPECT_EQ(job.hub.lost()->reason, "it has failed");
}

TEST(HeartbeatReplay, ReflectedToItsSenderIsRejected) {
  HubUnderAttack job;
  job.worker.send(kAlive);
  ASSERT_TRUE(job.worker.hears(HeartbeatKind::kBeat));
  ASSERT_TRUE(job.worker.hears(HeartbeatKind::kBeat));
  const auto packets = job.worker.recorded();
  for (const RecordedPacket& packet : packets) job.worker.send(packet);
  EXPECT_TRUE(job.has_counted(1, 0, packets.size()));

  Heartbeat worker(replay_options(1), {});
  PlayedPeer hub(0, worker, {});
  worker.start({hub.peer()});
  worker.tell_failure();
  ASSERT_TRUE(hub.hears_loss_of(1));
  for (const RecordedPacket& packet : hub.recorded()) hub.send(packet);
  EXPECT_TRUE(happens([&] { return worker.counters().rejected == hub.recorded().size(); }));
  EXPECT_EQ(worker.lost(), std::nullopt);
  hub.send(kLeaves);  // so that stop() need not wait for it
  EXPECT_TRUE(hub.hears(HeartbeatKind::kLeavingHeard));
}

TEST(HeartbeatReplay, ChangedOrCutIsRejected) {
  HubUnderAttack job;
  const RecordedPacket failure = job.worker.seal(kFailed);
  uint64_t sent = 0;
  for (size_t bit = 0; bit < failure.size() * 8; ++bit, ++sent) {
    RecordedPacket changed = failure;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    job.worker.send(changed);
  }
  for (size_t size = 0; size < failure.size(); ++size, ++sent)
    job.worker.send(std::span(failure).first(size));
  EXPECT_TRUE(job.has_counted(0, 0, sent));
  EXPECT_EQ(job.hub.lost(), std::nullopt);
  job.worker.send(failure);
  EXPECT_TRUE(happens([&] { return job.hub.lost().has_value(); })) << "unchanged, it has an effect";
}

TEST(HeartbeatReplay, OfAProcessThatHasStartedAgainIsRejected) {
  HubUnderAttack job;
  // The same rank under the same hub, but another process: its sequences begin anew, under another key.
  PlayedPeer again(1, job.hub, job.hub.session());
  job.worker.send(kAlive);
  again.send(kFailed);
  again.send(kFailed);
  EXPECT_TRUE(job.has_counted(1, 0, 2));
  EXPECT_EQ(job.hub.lost(), std::nullopt);
}

}  // namespace
}  // namespace lockstep
