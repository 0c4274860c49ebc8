#include "lockstep/runtime/workers/heartbeat.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <set>
#include <span>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using HeartbeatClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A verdict is sent before the next interval, and repeated at each interval while this process lives.
constexpr int kVerdictCopies = 3;

constexpr milliseconds kGoodbyeLimit{1000};
constexpr milliseconds kGoodbyeInterval{40};

// Foreign messages, however many, must not keep the thread from sending its own messages.
constexpr int kMostMessagesBetweenTicks = 4096;

/// Formats a duration as "3.5 s".
std::string heartbeat_seconds_text(milliseconds duration) {
  const auto tenths = (duration.count() + 50) / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

[[noreturn]] void refuse_heartbeat(const std::string& expected, const std::string& given) {
  throw InvalidArgument("[Heartbeat] expected " + expected + ", but got " + given);
}

HeartbeatOptions checked_heartbeat(HeartbeatOptions options) {
  if (options.world_size < 1)
    refuse_heartbeat("a world size of 1 or more", std::to_string(options.world_size));
  if (options.rank < 0 || options.rank >= options.world_size) {
    refuse_heartbeat("a rank from 0 to " + std::to_string(options.world_size - 1),
                     std::to_string(options.rank));
  }
  if (options.interval.count() < 1) {
    refuse_heartbeat("an interval of 1 ms or more", std::to_string(options.interval.count()) + " ms");
  }
  if (options.lost_after < 2 * options.interval) {
    refuse_heartbeat("lost_after of two intervals or more",
                     std::to_string(options.lost_after.count()) + " ms");
  }
  return options;
}

}  // namespace

Heartbeat::Heartbeat(HeartbeatOptions options, std::function<void(const LostPeer&)> on_lost)
    : options_(checked_heartbeat(std::move(options))),
      on_lost_(std::move(on_lost)),
      socket_(options_.bind_address),
      session_(JobToken::random().hex()) {}

Heartbeat::~Heartbeat() {
  stop();
}

void Heartbeat::start(std::vector<Peer> peers) {
  if (thread_.joinable() || stopping_) refuse_heartbeat("one call of start()", "another");
  std::sort(peers.begin(), peers.end(), [](const Peer& a, const Peer& b) { return a.rank < b.rank; });
  std::set<int> ranks;
  for (const Peer& peer : peers) {
    const std::string given = "rank " + std::to_string(peer.rank);
    if (peer.rank < 0 || peer.rank >= options_.world_size || peer.rank == options_.rank) {
      refuse_heartbeat("another rank of " + std::to_string(options_.world_size), given);
    }
    if (!ranks.insert(peer.rank).second) refuse_heartbeat("each rank once", given + " twice");
    if (peer.session.size() != session_.size()) {
      refuse_heartbeat("a session of " + std::to_string(session_.size()) + " characters of " + given,
                       std::to_string(peer.session.size()));
    }
  }
  const bool is_hub = options_.rank == 0;
  if (is_hub && static_cast<int>(ranks.size()) != options_.world_size - 1) {
    refuse_heartbeat(std::to_string(options_.world_size - 1) + " peers of rank 0",
                     std::to_string(ranks.size()));
  }
  if (!is_hub && !ranks.contains(0)) refuse_heartbeat("rank 0 among the peers", "others only");

  const std::string hub_session = is_hub ? session_ : peers.front().session;
  std::vector<Contact> contacts;
  for (const Peer& peer : peers) {
    if (!is_hub && peer.rank != 0) continue;
    if (peer.port < 1 || peer.port > 65535) {
      refuse_heartbeat("a port from 1 to 65535 of " + peer.name, std::to_string(peer.port));
    }
    contacts.push_back(
        {peer.rank, socket_.resolve(peer.host, peer.port), seal_of(peer.rank, peer.session, hub_session)});
  }
  peers_ = std::move(peers);
  contacts_ = std::move(contacts);
  seal_ = seal_of(options_.rank, session_, hub_session);
  detector_.emplace(FailureDetectorOptions{.rank = options_.rank,
                                           .world_size = options_.world_size,
                                           .interval = options_.interval,
                                           .lost_after = options_.lost_after,
                                           .are_ports_held = options_.are_ports_held},
                    HeartbeatClock::now());
  thread_ = std::thread([this] { run(); });
}

HeartbeatSeal Heartbeat::seal_of(int rank, const std::string& session, const std::string& hub_session) const {
  return {
      options_.token,
      {.rank = rank, .incarnation = options_.incarnation, .session = session, .hub_session = hub_session}};
}

void Heartbeat::stop() {
  assert(thread_.get_id() != std::this_thread::get_id());
  stopping_ = true;
  socket_.interrupt();
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::tell_failure() {
  has_failed_ = true;
  socket_.interrupt();
}

std::optional<LostPeer> Heartbeat::lost() const {
  const MutexLock lock(mutex_);
  return lost_;
}

std::optional<uint64_t> Heartbeat::rounds() const {
  const MutexLock lock(mutex_);
  return rounds_;
}

Heartbeat::Counters Heartbeat::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

void Heartbeat::run() {
  bool published = false;
  bool told = false;
  while (!stopping_) {
    socket_.wait_until(detector_->next_tick());
    // One clock reading for all: a pause after it shows at the next wake(), before the next tick().
    const auto now = HeartbeatClock::now();
    detector_->wake(now);
    receive(now);
    const bool is_round = detector_->tick(now);
    if (is_round) send_to_all();
    if (has_failed_ && !told) {
      told = true;
      detector_->fail();
      for (int copy = 0; copy < kVerdictCopies; ++copy) send_to_all();
    }
    if (detector_->loss() && !published) {
      published = true;
      for (int copy = 0; copy < kVerdictCopies; ++copy) send_to_all();
      publish(*detector_->loss());
    }
    add_counters();
    if (is_round) end_round();  // a loss that it found is published by now
  }
  {
    const MutexLock lock(mutex_);
    rounds_.reset();
  }
  say_goodbye();
  add_counters();
}

void Heartbeat::say_goodbye() {
  if (has_failed_) detector_->fail();
  detector_->leave();
  const auto is_awaited = [this](const Contact& contact) { return detector_->awaits_farewell(contact.rank); };
  const auto end = HeartbeatClock::now() + kGoodbyeLimit;
  for (const Contact& contact : contacts_) send(contact, HeartbeatKind::kLeaving);
  auto next_round = HeartbeatClock::now() + kGoodbyeInterval;
  while (std::any_of(contacts_.begin(), contacts_.end(), is_awaited)) {
    socket_.wait_until(std::min(next_round, end));
    const auto now = HeartbeatClock::now();
    receive(now);
    if (now >= end) return;
    if (now < next_round) continue;
    next_round = now + kGoodbyeInterval;
    for (const Contact& contact : contacts_) {
      if (is_awaited(contact)) send(contact, HeartbeatKind::kLeaving);
    }
  }
}

void Heartbeat::receive(HeartbeatClock::time_point now) {
  while (const auto address = socket_.receive_refusal()) {
    const auto contact = std::find_if(contacts_.begin(), contacts_.end(),
                                      [&](const Contact& each) { return each.address == *address; });
    if (contact != contacts_.end()) detector_->refuse(contact->rank);
  }
  // One byte more than a packet, so that a longer one is noticed.
  std::array<uint8_t, std::tuple_size_v<HeartbeatPacket> + 1> buffer{};
  for (int i = 0; i < kMostMessagesBetweenTicks; ++i) {
    const auto size = socket_.receive(buffer);
    if (!size) return;
    const auto message = open(std::span(buffer).first(std::min(*size, buffer.size())));
    const auto hearing = message ? detector_->hear(*message, now) : FailureDetector::Hearing::kForeign;
    if (hearing == FailureDetector::Hearing::kNew) {
      ++counted_.received;
      answer(*message);
    } else {
      ++(hearing == FailureDetector::Hearing::kOutdated ? counted_.outdated : counted_.rejected);
    }
  }
}

std::optional<HeartbeatMessage> Heartbeat::open(std::span<const uint8_t> packet) {
  const auto sender = claimed_heartbeat_sender(packet);
  Contact* contact = sender ? contact_of(*sender) : nullptr;
  return contact == nullptr ? std::nullopt : contact->seal.open(packet);
}

void Heartbeat::answer(const HeartbeatMessage& message) {
  const Contact& sender = *contact_of(message.sender);
  if (message.kind == HeartbeatKind::kLeaving) {
    send(sender, HeartbeatKind::kLeavingHeard);
  } else if (options_.rank == 0 && detector_->has_given_up(message.sender)) {
    // The sender did not run, and learns of its loss now. Only the hub answers, or two would answer each
    // other.
    send(sender, HeartbeatKind::kBeat);
  }
}

Heartbeat::Contact* Heartbeat::contact_of(int rank) {
  // The hub's contacts are all ranks from 1 on. Any other rank's only contact is the hub.
  const size_t place = static_cast<size_t>(rank) - (options_.rank == 0 ? 1 : 0);
  return place < contacts_.size() ? &contacts_[place] : nullptr;
}

void Heartbeat::send(const Contact& contact, HeartbeatKind kind) {
  const HeartbeatMessage message = detector_->message_to(contact.rank, kind);
  if (socket_.send_to(contact.address, seal_->seal(message))) ++counted_.sent;
}

void Heartbeat::send_to_all() {
  if (contacts_.size() == 1) {
    if (!detector_->has_left(contacts_.front().rank)) send(contacts_.front(), HeartbeatKind::kBeat);
    return;
  }
  const HeartbeatMessage message = detector_->message_to(HeartbeatMessage::kEveryRank, HeartbeatKind::kBeat);
  const HeartbeatPacket packet = seal_->seal(message);
  for (const Contact& contact : contacts_) {
    if (detector_->has_left(contact.rank)) continue;
    if (socket_.send_to(contact.address, packet)) ++counted_.sent;
  }
}

void Heartbeat::publish(const FailureDetector::Loss& loss) {
  const LostPeer lost{.rank = loss.rank,
                      .name = name_of(loss.rank),
                      .reason = reason_text(loss),
                      .has_failed = loss.reason == LossReason::kFailed};
  {
    const MutexLock lock(mutex_);
    lost_ = lost;
  }
  if (on_lost_) on_lost_(lost);
}

void Heartbeat::add_counters() {
  const MutexLock lock(mutex_);
  counters_.sent += counted_.sent;
  counters_.received += counted_.received;
  counters_.outdated += counted_.outdated;
  counters_.rejected += counted_.rejected;
  counted_ = {};
}

void Heartbeat::end_round() {
  const MutexLock lock(mutex_);
  ++*rounds_;
}

std::string Heartbeat::name_of(int rank) const {
  const std::string number = "rank " + std::to_string(rank);
  if (rank == options_.rank) return "this process (" + number + ")";
  const auto peer =
      std::find_if(peers_.begin(), peers_.end(), [rank](const Peer& each) { return each.rank == rank; });
  return peer == peers_.end() || peer->name.empty() ? number : peer->name;
}

std::string Heartbeat::reason_text(const FailureDetector::Loss& loss) const {
  const std::string silence = heartbeat_seconds_text(options_.lost_after);
  const std::string by_others = "given up by the others: ";
  if (loss.rank == options_.rank) {
    return loss.own_pause >= options_.lost_after / 2
               ? by_others + "this process did not run for " + heartbeat_seconds_text(loss.own_pause)
               : by_others + name_of(0) + " heard nothing from this process for " + silence;
  }
  switch (loss.reason) {
    case LossReason::kEnded:
      return "its process ended";
    case LossReason::kSilent:
      return "no sign of life for " + silence;
    case LossReason::kCutOff:
      return "it is cut off and hears nothing from rank 0";
    case LossReason::kFencedOff:
      return by_others + "it did not run for a while";
    case LossReason::kFailed:
      return "it has failed";
    case LossReason::kNone:
      break;
  }
  return "given up by rank 0";
}

}  // namespace lockstep
