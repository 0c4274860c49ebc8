#include "lockstep/runtime/exchange/exchange_engine.h"

// C library headers, for their types.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/runtime/exchange/exchange_message.h"

namespace lockstep {
namespace {

// How long to look for a message before waiting for it: about as long as a wait and a wake-up take.
constexpr std::chrono::microseconds kSpin{4};
constexpr size_t kMaxElementBytes = 16;

/// The memory of some blocks, without gaps where they follow each other.
template <typename Byte>
std::vector<std::span<Byte>> memory_of(const ExchangeCall& call, const BlockRanges& ranges) {
  std::vector<std::span<Byte>> parts;
  for (const auto& range : ranges) {
    for (int i = 0; i < range.count; ++i) {
      const auto block = call.blocks[static_cast<size_t>(range.first + i)];
      if (block.empty()) continue;
      if (!parts.empty() && parts.back().data() + parts.back().size() == block.data()) {
        parts.back() = {parts.back().data(), parts.back().size() + block.size()};
      } else {
        parts.push_back(block);
      }
    }
  }
  return parts;
}

template <typename Byte>
uint64_t bytes_in(const std::vector<std::span<Byte>>& parts) {
  uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  return bytes;
}

/// A position in a list of pieces of memory.
template <typename Byte>
class Cursor {
 public:
  explicit Cursor(std::vector<std::span<Byte>> parts) : parts_(std::move(parts)), left_(parts_) {}

  bool is_done() const { return left_.empty(); }
  std::span<const std::span<Byte>> parts() const { return left_; }
  /// Returns the rest of the current piece.
  std::span<Byte> part() const { return left_.front(); }
  void advance(size_t count) {
    while (!left_.empty() && count >= left_.front().size()) {
      count -= left_.front().size();
      left_ = left_.subspan(1);
    }
    if (!left_.empty()) left_.front() = left_.front().subspan(count);
  }

 private:
  std::vector<std::span<Byte>> parts_;
  std::span<std::span<Byte>> left_;
};

/// A message on its way to a peer.
class Sending {
 public:
  Sending(int peer, ExchangeLink& link, const MessageHeader& header, const ExchangeCall& call,
          const BlockRanges& blocks)
      : peer_(peer), link_(link), header_(encode(header)), message_(parts(call, blocks)) {}
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  int peer() const { return peer_; }
  ExchangeLink& link() const { return link_; }
  bool is_done() const { return message_.is_done(); }
  size_t payload_sent() const { return sent_ - std::min(sent_, header_.size()); }
  size_t sent() const { return sent_; }

  /// Returns whether the link has taken any bytes.
  bool advance() {
    if (is_done()) return false;
    const size_t count = link_.send(message_.parts());
    message_.advance(count);
    sent_ += count;
    return count > 0;
  }

 private:
  std::vector<std::span<const uint8_t>> parts(const ExchangeCall& call, const BlockRanges& blocks) const {
    std::vector<std::span<const uint8_t>> all{header_};
    for (const auto& part : memory_of<const uint8_t>(call, blocks)) all.push_back(part);
    return all;
  }

  const int peer_;
  ExchangeLink& link_;
  const std::vector<uint8_t> header_;
  Cursor<const uint8_t> message_;
  size_t sent_ = 0;
};

/// A message that is expected from a peer.
class Receiving {
 public:
  /// `before`, if not null, sends the same blocks, which must not change before they are sent.
  Receiving(int peer, ExchangeLink& link, MessageHeader expected, const ExchangeCall& call,
            const PlanReceive& receive, const Sending* before)
      : peer_(peer),
        link_(link),
        expected_(std::move(expected)),
        call_(call),
        is_added_(receive.is_added),
        before_(before),
        header_(kMessageHeaderBytes),
        payload_(memory_of<uint8_t>(call, receive.blocks)) {}

  int peer() const { return peer_; }
  ExchangeLink& link() const { return link_; }
  bool is_done() const { return has_header_ && payload_.is_done(); }
  /// Whether it can use bytes if some arrive now.
  bool is_open() const { return !is_done() && (!has_header_ || payload_limit() > 0); }

  /// Returns whether any bytes were received.
  bool advance() {
    bool has_advanced = false;
    if (!has_header_) {
      const size_t before = header_read_;
      if (!read_header()) return header_read_ > before;
      has_advanced = true;
    }
    while (!payload_.is_done()) {
      const size_t limit = std::min(payload_limit(), payload_.part().size());
      const size_t count = limit == 0  ? 0
                           : is_added_ ? add(limit)
                                       : link_.receive(payload_.part().first(limit));
      if (count == 0) break;
      payload_.advance(count);
      received_ += count;
      has_advanced = true;
    }
    return has_advanced;
  }

 private:
  /// How many bytes of the payload may be overwritten now.
  size_t payload_limit() const {
    return before_ == nullptr || before_->is_done() ? SIZE_MAX : before_->payload_sent() - received_;
  }

  bool read_header() {
    while (header_read_ < header_.size()) {
      const size_t count = link_.receive(std::span(header_).subspan(header_read_));
      if (count == 0) return false;
      header_read_ += count;
      if (header_read_ == kMessageHeaderBytes && header_.size() == kMessageHeaderBytes)
        header_.resize(kMessageHeaderBytes + text_bytes_of(header_));
    }
    check(decode_header(header_));
    has_header_ = true;
    return true;
  }

  void check(const MessageHeader& header) const {
    if (header.generation != expected_.generation)
      throw ExchangeError(ExchangeError::Kind::kBadMessage, peer_,
                          "sent a message of another start or channel");
    if (header.sequence != expected_.sequence || header.fingerprint != expected_.fingerprint) {
      const std::string call = header.text.empty() ? "another collective" : header.text;
      throw ExchangeError(ExchangeError::Kind::kMismatch, peer_,
                          "called " + call + " as collective #" + std::to_string(header.sequence), call);
    }
    if (header.number != expected_.number || header.payload_bytes != expected_.payload_bytes)
      throw ExchangeError(ExchangeError::Kind::kBadMessage, peer_,
                          "sent message " + std::to_string(header.number) + " of " +
                              std::to_string(header.payload_bytes) + " bytes, but expected message " +
                              std::to_string(expected_.number) + " of " +
                              std::to_string(expected_.payload_bytes) + " bytes");
  }

  /// Adds as many whole elements as have arrived, and returns their bytes.
  size_t add(size_t limit) {
    const size_t element = call_.element_bytes;
    if (num_split_ == 0) {
      const auto bytes = link_.received();
      const size_t usable = std::min(bytes.size(), limit);
      const size_t count = usable / element;
      if (count > 0) {
        call_.combine(payload_.part().data(), bytes.data(), count);
        link_.consume(count * element);
        return count * element;
      }
      if (usable == 0) return 0;
    }
    if (limit < element) return 0;
    // An element that has not arrived whole, or lies across the end of a ring buffer.
    num_split_ += link_.receive(std::span(split_).subspan(num_split_, element - num_split_));
    if (num_split_ < element) return 0;
    call_.combine(payload_.part().data(), split_.data(), 1);
    num_split_ = 0;
    return element;
  }

  const int peer_;
  ExchangeLink& link_;
  const MessageHeader expected_;
  const ExchangeCall& call_;
  const bool is_added_;
  const Sending* const before_;
  std::vector<uint8_t> header_;
  size_t header_read_ = 0;
  bool has_header_ = false;
  Cursor<uint8_t> payload_;
  size_t received_ = 0;  // bytes of the payload
  std::array<uint8_t, kMaxElementBytes> split_{};
  size_t num_split_ = 0;
};

}  // namespace

/// The messages of one round.
class ExchangeEngine::Round {
 public:
  /// Runs a function, whose errors are about `peer`.
  template <typename Function>
  static auto at(int peer, const Function& function) {
    try {
      return function();
    } catch (const ExchangeError&) {
      throw;
    } catch (const std::system_error& error) {
      if (error.code() == std::errc::bad_message)
        throw ExchangeError(ExchangeError::Kind::kBadMessage, peer, "damaged the memory of the link");
      if (error.code() == std::errc::timed_out)
        throw ExchangeError(ExchangeError::Kind::kTimeout, peer, "did not connect in time");
      throw ExchangeError(ExchangeError::Kind::kClosed, peer, "closed the connection");
    } catch (const std::invalid_argument& error) {
      throw ExchangeError(ExchangeError::Kind::kBadMessage, peer, error.what());
    }
  }

  std::vector<std::unique_ptr<Sending>> sendings;
  std::vector<std::unique_ptr<Receiving>> receivings;

  bool is_done() const {
    const auto done = [](const auto& message) { return message->is_done(); };
    return std::all_of(sendings.begin(), sendings.end(), done) &&
           std::all_of(receivings.begin(), receivings.end(), done);
  }

  /// Returns whether any bytes were sent or received.
  bool advance() {
    bool has_advanced = false;
    // Sending first tells a peer that called another collective so, before this rank finds that out and ends.
    for (const auto& sending : sendings)
      has_advanced = at(sending->peer(), [&] { return sending->advance(); }) || has_advanced;
    for (const auto& receiving : receivings)
      has_advanced = at(receiving->peer(), [&] { return receiving->advance(); }) || has_advanced;
    return has_advanced;
  }
};

ExchangeEngine::ExchangeEngine(Options options)
    : options_(std::move(options)), interruption_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (interruption_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

ExchangeEngine::~ExchangeEngine() = default;

ExchangeLink& ExchangeEngine::link_to(int peer, Clock::time_point deadline) {
  {
    MutexLock lock(mutex_);
    if (const auto known = links_.find(peer); known != links_.end()) return *known->second;
  }
  auto link = Round::at(peer, [&] { return options_.connect(peer, deadline); });
  MutexLock lock(mutex_);
  auto& kept = links_[peer] = std::move(link);
  if (is_interrupted_) kept->shut();
  return *kept;
}

void ExchangeEngine::run(const ExchangeCall& call, Clock::time_point deadline) {
  const auto& plan = *call.plan;
  if (plan.rank != options_.rank || plan.size != options_.size ||
      call.blocks.size() != static_cast<size_t>(plan.num_blocks + plan.num_scratch()) ||
      call.element_bytes == 0 || call.element_bytes > kMaxElementBytes)
    throw std::logic_error("the call does not fit its plan");
  MessageHeader header{.generation = options_.generation,
                       .sequence = call.sequence,
                       .fingerprint = fingerprint_of(call.description)};
  std::map<int, uint32_t> num_sent;
  std::map<int, uint32_t> num_received;
  for (const auto& planned : plan.rounds) {
    check_interrupted();
    Round round;
    for (const auto& send : planned.sends) {
      header.number = num_sent[send.peer]++;
      header.payload_bytes = bytes_in(memory_of<const uint8_t>(call, send.blocks));
      header.text = header.number == 0 ? call.description : "";
      round.sendings.push_back(
          std::make_unique<Sending>(send.peer, link_to(send.peer, deadline), header, call, send.blocks));
    }
    for (const auto& receive : planned.receives) {
      header.number = num_received[receive.peer]++;
      header.payload_bytes = bytes_in(memory_of<const uint8_t>(call, receive.blocks));
      const bool is_sent = planned.sends.size() == 1 && planned.sends[0].blocks == receive.blocks;
      round.receivings.push_back(std::make_unique<Receiving>(receive.peer, link_to(receive.peer, deadline),
                                                             header, call, receive,
                                                             is_sent ? round.sendings[0].get() : nullptr));
    }
    while (!round.is_done()) {
      if (!round.advance()) wait(round, deadline);
    }
    for (const auto& sending : round.sendings) bytes_sent_ += sending->sent();
    messages_sent_ += round.sendings.size();
    for (const auto& step : planned.steps) {
      const auto into = call.blocks[static_cast<size_t>(step.into)];
      const auto from = call.blocks[static_cast<size_t>(step.from)];
      if (into.empty()) continue;
      if (step.is_added) {
        call.combine(into.data(), from.data(), into.size() / call.element_bytes);
      } else {
        std::memcpy(into.data(), from.data(), into.size());
      }
    }
  }
}

/// Blocks until a message of the round may advance.
void ExchangeEngine::wait(Round& round, Clock::time_point deadline) {
  const auto spin_end = Clock::now() + kSpin;
  do {
    if (round.advance()) return;
  } while (Clock::now() < spin_end);

  // What is wanted of each link.
  struct Wanted {
    int peer;
    bool to_send = false;
    bool to_receive = false;
  };
  std::map<ExchangeLink*, Wanted> wanted;
  for (const auto& sending : round.sendings) {
    if (!sending->is_done())
      wanted.try_emplace(&sending->link(), Wanted{sending->peer()}).first->second.to_send = true;
  }
  for (const auto& receiving : round.receivings) {
    if (receiving->is_open())
      wanted.try_emplace(&receiving->link(), Wanted{receiving->peer()}).first->second.to_receive = true;
  }
  std::vector<pollfd> polled{{interruption_.get(), POLLIN, 0}};
  std::vector<ExchangeLink*> waiting;
  bool can_go_on = false;
  for (const auto& [link, want] : wanted) {
    const short events = link->begin_wait(want.to_send, want.to_receive);
    if (events == 0) {
      can_go_on = true;
      break;
    }
    polled.push_back({link->descriptor(), events, 0});
    waiting.push_back(link);
  }
  if (!can_go_on) {
    using std::chrono::milliseconds;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const auto time = std::clamp(left, milliseconds(0), milliseconds(std::chrono::minutes(10)));
    ++waits_;
    poll(polled.data(), polled.size(), static_cast<int>(time.count()));
  }
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i]->end_wait(polled[i + 1].revents);
  check_interrupted();
  if (!can_go_on && Clock::now() >= deadline) {
    const int peer = wanted.size() == 1 ? wanted.begin()->second.peer : -1;
    throw ExchangeError(ExchangeError::Kind::kTimeout, peer, "did not answer in time");
  }
}

void ExchangeEngine::check_interrupted() const {
  if (is_interrupted_)
    throw ExchangeError(ExchangeError::Kind::kInterrupted, -1, "the exchange was given up");
}

void ExchangeEngine::interrupt() noexcept {
  if (is_interrupted_.exchange(true)) return;
  eventfd_write(interruption_.get(), 1);
  MutexLock lock(mutex_);
  for (const auto& [peer, link] : links_) link->shut();
}

ExchangeEngine::Counters ExchangeEngine::counters() const {
  return {messages_sent_, bytes_sent_, waits_};
}

}  // namespace lockstep
