#include "lockstep/tests/support/udp_relay.h"

#include <algorithm>

namespace lockstep::testing {

UdpRelay::UdpRelay(int receiver_port, RelayFaults faults, uint64_t seed)
    : socket_("127.0.0.1"),
      receiver_(socket_.resolve("127.0.0.1", receiver_port)),
      faults_(faults),
      generator_(seed),
      thread_([this] { run(); }) {}

UdpRelay::~UdpRelay() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  socket_.interrupt();
  thread_.join();
}

void UdpRelay::set_faults(RelayFaults faults) {
  const MutexLock lock(mutex_);
  faults_ = faults;
}

UdpRelay::Counters UdpRelay::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

void UdpRelay::run() {
  std::vector<uint8_t> bytes;
  while (true) {
    auto next = Clock::now() + std::chrono::hours(1);
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      if (!delayed_.empty()) next = delayed_.begin()->first;
    }
    socket_.wait_until(next);
    const MutexLock lock(mutex_);
    while (socket_.receive_refusal()) {
    }
    bytes.resize(2048);
    while (const auto size = socket_.receive(bytes)) {
      bytes.resize(std::min(*size, bytes.size()));
      accept(bytes);
      bytes.resize(2048);
    }
    forward_due();
  }
}

void UdpRelay::accept(const std::vector<uint8_t>& bytes) {
  ++counters_.arrived;
  if (draw(99) < faults_.lost_percent) {
    ++counters_.lost;
    return;
  }
  for (int copies = draw(99) < faults_.duplicated_percent ? 2 : 1; copies > 0; --copies) {
    const std::chrono::milliseconds delay(draw(faults_.most_delay.count()));
    delayed_.emplace(Clock::now() + delay, Datagram{counters_.arrived, bytes});
  }
}

void UdpRelay::forward_due() {
  while (!delayed_.empty() && delayed_.begin()->first <= Clock::now()) {
    const Datagram& datagram = delayed_.begin()->second;
    if (datagram.number < newest_forwarded_) ++counters_.overtaken;
    newest_forwarded_ = std::max(newest_forwarded_, datagram.number);
    socket_.send_to(receiver_, datagram.bytes);
    delayed_.erase(delayed_.begin());
  }
}

int64_t UdpRelay::draw(int64_t most) {
  return static_cast<int64_t>(generator_() % static_cast<uint64_t>(most + 1));
}

}  // namespace lockstep::testing
