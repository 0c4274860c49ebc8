#include "lockstep/runtime/exchange/exchange_engine.h"

// C library headers, for their types.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/exchange/exchange_message.h"
#include "lockstep/runtime/exchange/internal/exchange_round.h"

namespace lockstep {
namespace {

// How long to look for a message before waiting for it: about as long as a wait and a wake-up take.
constexpr std::chrono::microseconds kSpin{4};

}  // namespace

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
  auto link = with_peer(peer, [&] {
    try {
      return options_.connect(peer, deadline);
    } catch (const std::system_error& error) {
      if (error.code() == std::errc::timed_out)
        throw ExchangeError(ExchangeError::Kind::kTimeout, peer, "did not connect in time");
      if (error.code() == std::errc::permission_denied)
        throw ExchangeError(ExchangeError::Kind::kClosed, peer,
                            "refused the connection: it has ended its part, or has another job token");
      if (error.code() == std::errc::operation_canceled)
        throw ExchangeError(ExchangeError::Kind::kInterrupted, -1, "the exchange was given up");
      throw;
    }
  });
  MutexLock lock(mutex_);
  auto& kept = links_[peer] = std::move(link);
  if (is_interrupted_) kept->shut();
  return *kept;
}

void ExchangeEngine::run(const ExchangeCall& call, Clock::time_point deadline) {
  const auto& plan = *call.plan;
  if (plan.rank != options_.rank || plan.size != options_.size ||
      static_cast<int>(call.blocks.size()) != plan.num_blocks + plan.num_scratch() ||
      call.element_bytes == 0 || call.element_bytes > kMaxElementBytes)
    throw std::logic_error("the call does not fit its plan");
  MessageHeader header{.generation = options_.generation,
                       .sequence = call.sequence,
                       .fingerprint = fingerprint_of(call.description)};
  std::map<int, uint32_t> num_sent;
  std::map<int, uint32_t> num_received;
  for (const auto& planned : plan.rounds) {
    check_interrupted();
    MessageRound round;
    for (const auto& send : planned.sends) {
      header.number = num_sent[send.peer]++;
      header.payload_bytes = bytes_of_blocks(call, send.blocks);
      header.text = header.number == 0 ? call.description : "";
      round.sent.push_back(
          std::make_unique<SentMessage>(send.peer, link_to(send.peer, deadline), header, call, send.blocks));
    }
    for (const auto& receive : planned.receives) {
      header.number = num_received[receive.peer]++;
      header.payload_bytes = bytes_of_blocks(call, receive.blocks);
      const bool is_sent = planned.sends.size() == 1 && planned.sends[0].blocks == receive.blocks;
      round.received.push_back(
          std::make_unique<ReceivedMessage>(receive.peer, link_to(receive.peer, deadline), header, call,
                                            receive, is_sent ? round.sent[0].get() : nullptr));
    }
    while (!round.is_done()) {
      if (!round.advance()) wait(round, deadline);
    }
    for (const auto& message : round.sent) bytes_sent_ += message->sent();
    messages_sent_ += round.sent.size();
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
void ExchangeEngine::wait(MessageRound& round, Clock::time_point deadline) {
  const auto spin_end = Clock::now() + kSpin;
  do {
    if (round.advance()) return;
  } while (Clock::now() < spin_end);

  // The directions wanted of each link.
  struct Wanted {
    int peer;
    bool to_send = false;
    bool to_receive = false;
  };
  std::map<ExchangeLink*, Wanted> wanted;
  for (const auto& sending : round.sent) {
    if (!sending->is_done())
      wanted.try_emplace(&sending->link(), Wanted{sending->peer()}).first->second.to_send = true;
  }
  for (const auto& receiving : round.received) {
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
    poll(polled.data(), polled.size(), poll_timeout(deadline));
  }
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i]->end_wait(polled[i + 1].revents);
  check_interrupted();
  if (Clock::now() >= deadline) {
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
  return {messages_sent_, bytes_sent_};
}

}  // namespace lockstep
