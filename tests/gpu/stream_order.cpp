#include "lockstep/tests/gpu/stream_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::fake_gpu {
namespace {

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t stream = 0; stream < other.size(); ++stream)
    clock[stream] = std::max(clock[stream], other[stream]);
}

/// Returns whether `clock` includes the work of `stream` up to `time`.
bool knows(const Clock& clock, size_t stream, uint64_t time) {
  return stream < clock.size() && clock[stream] >= time;
}

bool overlap(const StreamOrder::Range& a, const StreamOrder::Range& b) {
  return a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

bool covers(const StreamOrder::Range& outer, const StreamOrder::Range& inner) {
  return outer.begin <= inner.begin && inner.begin + inner.bytes <= outer.begin + outer.bytes;
}

}  // namespace

void StreamOrder::launch(StreamName stream, const std::string& what, const std::vector<Range>& reads,
                         const std::vector<Range>& writes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t number = number_of(stream);
  Clock& clock = streams_[number].clock;
  join(clock, host_);
  const uint64_t time = ++clock[number];
  for (const auto& range : reads) access(number, time, what, range, /*is_write=*/false);
  for (const auto& range : writes) access(number, time, what, range, /*is_write=*/true);
}

Clock StreamOrder::record(StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Clock& clock = streams_[number_of(stream)].clock;
  join(clock, host_);
  return clock;
}

void StreamOrder::wait(StreamName stream, const Clock& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join(streams_[number_of(stream)].clock, event);
}

void StreamOrder::wait_on_host(const Clock& event, const std::string& what) {
  know_on_host([&] {
    host_waits_.push_back(what);
    join(host_, event);
  });
}

void StreamOrder::learn_on_host(const Clock& event) {
  know_on_host([&] { join(host_, event); });
}

void StreamOrder::show_on_host(StreamName stream, std::function<void()> show) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t number = number_of(stream);
  unseen_.push_back({number, streams_[number].clock[number], std::move(show)});
}

void StreamOrder::know_on_host(const std::function<void()>& note) {
  const std::lock_guard<std::mutex> showing(showing_mutex_);
  std::vector<Unseen> known;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    note();
    const auto first = std::stable_partition(unseen_.begin(), unseen_.end(), [&](const Unseen& unseen) {
      return !knows(host_, unseen.stream, unseen.time);
    });
    known.assign(std::make_move_iterator(first), std::make_move_iterator(unseen_.end()));
    unseen_.erase(first, unseen_.end());
  }
  for (const auto& unseen : known) unseen.show();  // frees memory, which calls this StreamOrder again
}

void StreamOrder::allocate(StreamName stream, Range block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t number = number_of(stream);
  Stream& taker = streams_[number];
  for (const auto& freed : taker.freed) {
    for (const auto& access : freed.block.accesses) {
      const auto is_known = [&](const Clock& clock) { return knows(clock, access.stream, access.time); };
      if (is_known(taker.clock) || is_known(freed.known) || is_known(host_)) continue;
      races_.push_back("memory that " + access.what + " uses on " + text_of(access.stream) +
                       " was freed and is taken again on " + text_of(number));
    }
  }
  taker.freed.clear();
  blocks_[block.begin] = {block, number, {}, {}};
}

void StreamOrder::free(const char* begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(begin);
  if (found == blocks_.end()) return;
  FreedBlock freed{std::move(found->second), {}};
  blocks_.erase(found);
  for (const size_t stream : freed.block.other_streams) join(freed.known, streams_[stream].clock);
  streams_[freed.block.stream].freed.push_back(std::move(freed));
}

void StreamOrder::reserve(StreamName stream, Range block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_[block.begin] = {block, number_of(stream), {}, {}};
}

void StreamOrder::unreserve(const char* begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  blocks_.erase(begin);
}

void StreamOrder::use_on(const char* begin, StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Block* block = find_block(begin)) block->other_streams.push_back(number_of(stream));
}

std::vector<std::string> StreamOrder::races() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return races_;
}

std::vector<std::string> StreamOrder::host_waits() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return host_waits_;
}

void StreamOrder::forget() {
  know_on_host([&] {
    races_.clear();
    host_waits_.clear();
    for (Stream& stream : streams_) {
      stream.freed.clear();
      join(host_, stream.clock);
    }
  });
}

int StreamOrder::used_streams(int device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(std::count_if(numbers_.begin(), numbers_.end(), [&](const auto& entry) {
    const auto& [name, number] = entry;
    return name.device == device && streams_[number].clock[number] > 0;
  }));
}

size_t StreamOrder::number_of(StreamName stream) {
  const auto [entry, is_new] = numbers_.try_emplace(stream, streams_.size());
  if (is_new) streams_.push_back({stream, Clock(streams_.size() + 1), {}});
  return entry->second;
}

std::string StreamOrder::text_of(size_t stream) const {
  const StreamName& name = streams_[stream].name;
  return "stream " + std::to_string(name.id) + " of " + device_type_ + ":" + std::to_string(name.device);
}

StreamOrder::Block* StreamOrder::find_block(const char* address) {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return nullptr;
  Block& block = std::prev(next)->second;
  return address < block.range.begin + block.range.bytes ? &block : nullptr;
}

void StreamOrder::access(size_t stream, uint64_t time, const std::string& what, const Range& range,
                         bool is_write) {
  if (range.bytes == 0) return;
  Block* block = find_block(range.begin);
  if (block == nullptr) return;
  const Clock& clock = streams_[stream].clock;
  const auto is_before = [&](const Access& earlier) { return knows(clock, earlier.stream, earlier.time); };
  auto& accesses = block->accesses;
  for (const auto& earlier : accesses) {
    if (!(is_write || earlier.is_write) || !overlap(earlier.range, range) || is_before(earlier)) continue;
    races_.push_back(what + (is_write ? " writes" : " reads") + " on " + text_of(stream) + " what " +
                     earlier.what + (earlier.is_write ? " writes" : " reads") + " on " +
                     text_of(earlier.stream));
  }
  // An earlier access that this one follows and covers can reveal nothing that this one does not.
  std::erase_if(accesses, [&](const Access& earlier) {
    return covers(range, earlier.range) && is_before(earlier) && (is_write || !earlier.is_write);
  });
  accesses.push_back({range, stream, time, is_write, what});
}

}  // namespace lockstep::fake_gpu
